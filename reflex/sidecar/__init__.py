"""The sidecar: HTTP in front of a worker, as a process of its own. It speaks OpenAI's protocol, and that of typed decisions.

It starts `reflex stdio`, gives it one request after the other and starts it again when it dies. Nothing of the engine is
imported here: what a request means is judged by the worker; the sidecar knows shapes, queues, clocks and status codes.

main.py      from the command line to the exit code: the order of a start;  options.py  the command line
process.py   the worker as a child process;  listen.py  the socket for clients;  server.py  connections, by uvicorn
engine.py    who waits for the worker, and its lives;  link.py  lines to it and from it
app.py       the token, bodies, clocks;  pages.py  what takes no turn;  metrics.py  counts;  problems.py  errors as HTTP answers
shape.py     JSON held against a schema;  requests.py, answers.py  the schemas;  openapi.py  the document made of them
openai.py    chat and completions;  decisions.py  classify and systemone
"""
