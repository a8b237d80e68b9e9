"""Twins of the kernels of several residual streams and of sparse gates; see twins.py."""

from twins import reference, rows_of, twin


@twin("streams_level")
def streams_level(grid, x, others, out, n, stride, ending):
    rows = grid[0]
    first, others = rows_of(x, rows, stride), rows_of(others, rows, 3 * n)
    made = reference("streams_end")(first, others) if ending else reference("streams_begin")(first, others)
    rows_of(out, *made.shape)[:] = made


@twin("streams_predict")
def streams_predict(grid, s, c, out, n):
    rows_of(out, grid[1], 4 * n)[:] = reference("streams_predict")(rows_of(s, grid[1], 4 * n), rows_of(c, grid[1], 16))


@twin("streams_correct")
def streams_correct(grid, p, y, c, out, n):
    rows = grid[1]
    made = reference("streams_correct")(rows_of(p, rows, 4 * n), rows_of(y, rows, n), rows_of(c, rows, 4))
    rows_of(out, rows, 4 * n)[:] = made


@twin("streams_inject")
def streams_inject(grid, s, y, n):
    held = rows_of(s, grid[1], 4 * n)
    held[:] = reference("streams_inject")(held, rows_of(y, grid[1], n))


@twin("sparsify")
def sparsify(grid, x, n, deviations):
    held = rows_of(x, grid[0], n)
    held[:] = reference("sparsify")(held, deviations=deviations)
