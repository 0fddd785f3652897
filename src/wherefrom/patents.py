"""The patent note of relevance propagation. Imports nothing, so that results are shown without torch."""

PATENTED_IDEA = "relevance propagation"  # the `idea` of the methods that the note is about; none of them is a default
PATENT_NOTE = "relevance propagation is said to be patented: free for personal and scientific use only"
