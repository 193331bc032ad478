# SPDX-License-Identifier: Apache-2.0
"""Stories of 60 to 200 words from the grammar in text/stories.txt.

The one idea: a plot is six beats in a fixed order, each told by one of several templates, about a
hero, a helper and a thing that stay the same; so a reader must carry names, pronouns and the thing
through the text, but no order of sentences can be learned by heart.
"""
import grammar

FRAMES = grammar.sections("frames.txt")


class StoryTeller:
    def __init__(self):
        self.words = grammar.word_lists()
        self.plots = {}
        self._read()

    def tell(self, rng):
        """One story as {"slots", "text", "plot"}."""
        names = [name for name in self.plots if name not in ("open", "trait", "end")]
        name = rng.choice(names)
        plot = self.plots[name]
        slots = self._cast(name, plot, rng)
        beats = [self.plots["open"]["beats"][0]]
        if rng.random() < 0.6:
            beats.append(self.plots["trait"]["beats"][0])
        last = plot["beats"][5:] if rng.random() < 0.6 else []
        beats += plot["beats"][:5] + last + [self.plots["end"]["beats"][0]]
        sentences = [grammar.choose(rng.choice(beat), rng).strip() for beat in beats]
        breaks = [i > 1 and rng.random() < 0.3 for i in range(1, len(sentences))]
        text = sentences[0]
        for sentence, new_paragraph in zip(sentences[1:], breaks):
            text += ("\n\n" if new_paragraph else " ") + sentence
        return {"slots": slots, "text": grammar.fill(text, slots), "plot": plot}

    def ask(self, story, rng):
        """A request that the story answers."""
        kind = rng.random()
        about = ""
        if kind < 0.5:
            about = rng.choice(FRAMES["story-subject"])
        elif kind < 0.9:
            about = rng.choice(story["plot"]["p"])
        slots = dict(story["slots"], a="a")
        about = grammar.fill(grammar.choose(about, rng), slots)
        ask = grammar.choose(rng.choice(FRAMES["story"]), rng)
        if not about and "{P}" in ask:
            ask = "Tell me a story, please."
        bare = about[6:] if about.startswith("about ") else about
        ask = ask.replace("{p}", about).replace("{P}", grammar.upper_first(bare))
        return re_space(ask)

    def follow_up(self, story, rng):
        """A question about the story that was just told, and its answer."""
        question, answer = rng.choice(FRAMES["story-follow-up"]).split(" => ")
        return (grammar.fill(grammar.choose(question, rng), story["slots"]),
                grammar.fill(answer, story["slots"]))

    def _cast(self, name, plot, rng):
        words = self.words
        kinds = rng.sample(words["kind"], 2)
        if rng.random() < 0.3:
            kinds[0] = rng.choice(words["human"])
        if rng.random() < 0.1:
            kinds[1] = rng.choice([k for k in words["human"] if k != kinds[0]])
        things = [t for t in words.get("thing." + name, ["thing"]) if t not in kinds]
        moral = grammar.choose(rng.choice(plot["moral"]), rng)
        time = rng.choice(words["time"])
        slots = {"K": kinds[0], "MK": kinds[1], "T": rng.choice(things), "moral": moral, "a": "a",
                 "Moral": grammar.upper_first(moral), "A": self._trait("trait", kinds[0], rng),
                 "mA": self._trait("trait2", kinds[1], rng), "P": rng.choice(words["place"]),
                 "W": time, "W_": grammar.lower_first(time)}
        slots["N"] = self._person(kinds[0], "", slots, rng)
        slots["M"] = self._person(kinds[1], "m", slots, rng)
        while slots["M"] == slots["N"]:
            slots["M"] = self._person(kinds[1], "m", slots, rng)
        return slots

    def _trait(self, name, kind, rng):
        """A trait that does not clash with the kind ("old old woman", "young giant" is fine)."""
        return rng.choice([t for t in self.words[name] if t not in kind.split()
                           and not (kind.startswith("old ") and t in ("young", "old"))])

    def _person(self, kind, prefix, slots, rng):
        """Picks a name that suits the kind; sets the pronouns; returns the name."""
        male = kind in self.words["he"] or (kind not in self.words["she"] and rng.random() < 0.5)
        forms = ("he", "his", "him", "himself") if male else ("she", "her", "her", "herself")
        for slot, form in zip(("he", "his", "him", "himself"), forms):
            slots[prefix + slot] = form
            slots[grammar.upper_first(prefix + slot)] = grammar.upper_first(form)
        return rng.choice(self.words["him" if male else "her"])

    def _read(self):
        plot = None
        for line in grammar.lines("stories.txt"):
            if line.startswith("== "):
                plot = self.plots[line[3:].strip()] = {"p": [], "moral": [], "beats": []}
                if line[3:].strip() in ("open", "trait", "end"):
                    plot["beats"].append([])
            elif line.startswith("p "):
                plot["p"].append(line[2:])
            elif line.startswith("moral "):
                plot["moral"].append(line[6:])
            elif line.strip() == "--":
                plot["beats"].append([])
            else:
                plot["beats"][-1].append(line)


def re_space(text):
    """No double or trailing spaces, none before a full stop."""
    text = " ".join(text.split())
    for mark in ".,!?":
        text = text.replace(" " + mark, mark)
    return text
