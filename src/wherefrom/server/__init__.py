"""`wherefrom serve`: the web page over the viewer, and the same as a JSON API.

    browser ── guard ─► app ─► line ─► one worker thread: asking ─► explain, evidence ─► events ─► viewer

`guard` decides who may ask, `app` says what can be asked, `line` lets requests wait instead of piling up, and `asking`
turns one request into explanations, one event after the other. Nothing here computes a score.
"""
