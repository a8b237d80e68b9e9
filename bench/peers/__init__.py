"""Other engines as this repository drives them; none is needed to use Reflex."""
