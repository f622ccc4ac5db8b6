"""The tables and figures of the papers, measured here beside peers: plan, readers, rows and page.

`python3 bench/evaluation` runs it (`__main__.py` there has the options).
"""
