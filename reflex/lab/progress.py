"""Progress bars of what takes over a second, on stderr; none where tqdm (extra `lab`) is not installed."""


def progress(items, total, what):
    """The same items, shown as a bar once they take longer than a second. `total`: how many, or None; `what`: a word for each."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return items
    return tqdm(items, total=total, unit=" " + what, delay=1, leave=False)
