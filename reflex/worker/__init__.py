"""The worker: a loaded model that answers one request after the other, as lines of JSON over stdin and stdout or a local socket.

stdin, stdout and socket files are all it listens to. A request is one file in requests/ that has `FIELDS` and `run`; nothing lists
them.

protocol.py  lines and requests: what a request may say, checked by the tables of requests/
channel.py   one client: its lines in, answers out, within time and memory;  socket.py  the socket file and who waits there
loop.py      the order of requests, cancelling, what an error leaves behind;  start.py  from the command line to `ready`
page.py      docs/worker.md, made from all of these
"""
