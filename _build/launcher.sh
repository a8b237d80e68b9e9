#!/bin/sh
# Starts the interpreter beside this file without `site`, which saves 1.5 ms of a cold start against one shell of 0.6.
# Anything unusual (a user install, no interpreter beside it) goes through reflex-python, whose first line pip wrote.
self=$0
case $self in */*) ;; *) self=./$self ;; esac
[ -h "$self" ] && self=$(readlink -f "$self")
bin=${self%/*}
[ -x "$bin/python" ] && exec "$bin/python" -IS "$bin/reflex-python" "$@"
exec "$bin/reflex-python" "$@"
