"""Progress bars of what takes over a second, on stderr; none where tqdm (extra `lab`) is not installed."""


def progress(items, what):
    """The same items, shown as a bar once they take longer than a second; `what`: a word for several of them."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        return items
    return tqdm(items, unit=" " + what, delay=1, leave=False)
