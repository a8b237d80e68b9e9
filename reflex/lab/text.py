"""A small text to measure on where none is given: prose, talk, facts, a list, numbers, code. Written for this purpose; do not
edit it, since results on it are compared over time.
"""

TEXT = """\
The lighthouse keeper's daughter had learned to read the weather before she learned to read books. In the morning she would \
stand on the gravel path behind the house, look at the line where the sea met the sky, and tell her father whether the supply \
boat would come. She was right more often than the radio. When people in the village asked how she did it, she said that the \
gulls told her, which was a joke, although nobody was ever quite sure.

One October the boat did not come for nine days. The flour ran out first, then the coffee, and finally the paraffin for the \
small lamp in the kitchen. The big lamp, high above them, had its own tank and its own rules. Her father climbed the stairs \
every evening at the same time, polished the lens with a soft cloth, and came down again without a word. On the tenth day the \
wind turned to the south, the swell went down, and at noon they heard the engine of the boat long before they could see it.

"You look thin," said the skipper when he threw her the rope.
"We are out of everything except potatoes," she answered.
"Then it is a good thing that I brought onions."

They laughed, and it took the three of them most of the afternoon to carry the boxes up to the house.

How a lens of this kind works is easy to say and was hard to invent. A lamp sends its light in all directions, so that most of\
 it is lost. A thick piece of glass could gather it, but a piece large enough would weigh several tons and would swallow much \
of the light on its way. The answer was to keep only the curved surface and to leave out the glass behind it: rings of prisms,\
 each cut at its own angle, bend the light so that it leaves the tower as a flat, narrow beam. With such a lens a flame no \
stronger than a few dozen candles can be seen from a distance of more than thirty kilometres. The first ones were built in \
France in the 1820s, and within fifty years there was hardly a coast in Europe without them.

Things to check before winter:
1. Oil the hinges of the storm shutters.
2. Count the spare wicks; there should be at least twelve.
3. Empty the rain barrel, or the frost will split it.
4. Write down the hours of light and the amount of fuel used.

The log of the station was kept with care. In 1931 the lamp burned for 4,310 hours and used 1,865 litres of paraffin, which is\
 0.43 litres per hour. In 1932 a new burner was fitted; the lamp burned for 4,296 hours and used 1,504 litres, or 0.35 litres \
per hour, a saving of almost 20 percent. In 1958 the station was connected to the mainland by a cable, and nobody counted \
litres any more.

Years later, when the tower had been empty for a long time, a student wrote a small program to find out how far away the light\
 could have been seen. It does not need much:

def visible_range(height, eye=2.0):
    \"\"\"Kilometres at which a light can be seen, from its height and that of the eye in metres.\"\"\"
    def horizon(h):
        return 3.57 * h ** 0.5
    return horizon(height) + horizon(eye)

for height in (10, 20, 40, 60):
    print(f"{height} m: {visible_range(height):.1f} km")

The result for the height of this tower, 41 metres above the water, is about 28 kilometres. That is a little less than what \
the old sailors claimed, but then they were standing on a mast, and not on the deck, when they looked for the light. It is \
also true that a bright lamp can be seen before it rises above the horizon, because the haze above it begins to glow. Whoever \
has come home by sea at night knows this faint, turning shine, and knows that it means that somebody is awake.

The island belongs to nobody now. In summer there are day trips from the harbour, twice a week if the weather allows it, and \
the visitors may climb the tower as long as no more than six of them are on the stairs at once. The kitchen has become a \
museum with a stove, a table, two chairs and a shelf with blue cups. On the wall there is a photograph of a girl with a rope \
in her hands. She is looking past the camera, to the south, where the sky is a little brighter than everywhere else. Below it,\
 in pencil, somebody has written the date and a single sentence: the gulls said that it would be fine tomorrow.
"""
