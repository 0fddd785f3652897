"""`wherefrom serve`: the web page over the viewer, and the same as a JSON API.

    browser ── guard ─► app ─► queue ─► one worker thread: handlers ─► explain, evidence ─► events ─► viewer

`guard` decides who may ask, `app` says what can be asked, `queue` lets requests wait their turn, and `handlers`
turns one request into explanations, one event after the other. Nothing here computes a score.
"""
