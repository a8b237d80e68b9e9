"""The command line. A command is one file here that has `PARAMETERS` and `run`; nothing lists the commands.

front.py     parses argv from the command's own table, runs it, turns errors into one line and an exit code
app.py       the same commands as a Typer app, for everything the front does not take: help, mistakes, odd spellings
output.py    where results, notes, JSON lines and phases go;  jsonline.py  the JSON encoder of the cold path
"""
