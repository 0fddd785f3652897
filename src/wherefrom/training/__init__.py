"""The code that made the shipped models: pretraining, classification, verb agreement, prompts.

Every run reads plain files, writes a `save_pretrained` folder and resumes after a kill.
"""
