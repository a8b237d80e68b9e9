"""Reflex inside other systems; nothing here is on the path of a cold start, and each module asks for an extra of its own.

ray.py      score a column of a table, an actor per device (extra `ray`): the function, the command line
pool.py     the actors: work for each, restarts, rows that end an actor
scorer.py   what an actor does: rows to scores
columns.py  the tables, CSV and Parquet: a column in, columns out
parts.py    what is done already: finished parts beside the output, so that a run can go on
"""
