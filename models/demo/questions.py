# SPDX-License-Identifier: Apache-2.0
"""Questions about Pantheon's commands, small talk, and their answers.

The one idea: what is asked (a verb phrase, a name, a whole question) and how it is asked (a frame) are
drawn apart, then roughened (case, contractions, typing errors, lost words), so that the model learns
the meaning of phrases and not a list of questions.
"""
import grammar

VERB_FRAMES = [
    "How do I {v}?", "How do I {v}?", "How do I {v}?", "How can I {v}?", "How can I {v}?", "How would I {v}?",
    "How does one {v}?", "How to {v}?", "How could I {v}?", "How should I {v}?", "How do you {v}?",
    "What is the command to {v}?", "What command do I need to {v}?", "Which command do I use to {v}?",
    "Which command lets me {v}?", "Which command {v3}?", "Which command {v3}?", "What {v3}?",
    "Which Pantheon command {v3}?", "With which command can I {v}?", "What do I type to {v}?",
    "What should I run to {v}?", "What do I have to do to {v}?", "What is the best way to {v}?",
    "What is the easiest way to {v}?", "Is there a command to {v}?", "Is there a way to {v}?",
    "Is it possible to {v}?", "Can I {v}?", "Can Pantheon {v}?", "Could I {v}?", "May I {v}?",
    "I want to {v}.", "I want to {v}. How?", "I want to {v}. What do I type?", "I would like to {v}.",
    "I would like to {v}. Which command is it?", "I need to {v}.", "I have to {v}.", "I wish to {v}.",
    "I am trying to {v}.", "I try to {v}. What is the command?", "I must {v}. How do I do that?",
    "Tell me how to {v}.", "Show me how to {v}.", "Explain how to {v}.", "Teach me to {v}.",
    "Can you tell me how to {v}?", "Could you explain how to {v}?", "Can you show me how to {v}?",
    "Do you know how to {v}?", "Help me to {v}.", "Please help me {v}.", "Where can I {v}?",
    "Where do I {v}?", "{V}.", "{V}, please.", "Please {v}.", "{V}!", "Let me {v}.", "What if I want to {v}?",
    "How do people {v}?", "What must I do to {v}?", "What do I do if I want to {v}?", "We want to {v}.",
    "How do we {v}?", "My boss wants me to {v}.", "{V}: which command?", "{V}: how?",
    "I forgot how to {v}.", "I do not know how to {v}.", "Remind me how to {v}.",
]
FLAG_FRAMES = [
    "Which flag do I need to {v}?", "Which option lets me {v}?", "Which flag {v3}?", "What option {v3}?",
    "Is there a flag to {v}?", "Is there an option to {v}?", "What flag do I use to {v}?",
    "With which flag can I {v}?", "I want to {v}. Which flag?", "{V}: which flag?",
]
NAME_FRAMES = [
    "What does {n} do?", "What does {n} do?", "What does `{n}` do?", "What does `{n}` do?", "What is {n}?",
    "What is `{n}`?", "What is {n} for?", "What is `{n}` for?", "Explain {n}.", "Explain `{n}`.",
    "Tell me about {n}.", "Tell me about `{n}`.", "When do I use {n}?", "When do I need `{n}`?",
    "How do I use {n}?", "How do I use `{n}`?", "How does {n} work?", "How does `{n}` work?",
    "What does the {n} {kind} do?", "What is the {n} {kind}?", "What is the {n} {kind} for?",
    "Explain the {n} {kind}.", "Explain the `{n}` {kind} to me.", "Describe {n}.", "{n}", "`{n}`", "{n}?",
    "What happens when I use {n}?", "Why would I use {n}?", "Help with {n}.", "What do I need {n} for?",
    "What can I do with {n}?", "What can I do with `{n}`?", "What does {n} mean?",
]
EXAMPLE_ASKS = [
    "[Give me|Show me|Can you give me|Can I see|Please show me] an example[ of {n}| of `{n}`| for {n}]"
    "[.|, please.|?]",
    "[An example|Example] [of|for] {n}[.|, please.|?]", "How do I write {n}?",
    "What would I type for {n}?", "What does a call of {n} look like?",
]
MORE_ASKS = [
    "[Give me|Show me|Can you give me|Can I see|Please give me|Do you have] an example[.|, please.|?]",
    "[An example|Example|For example|For instance|Show me|How exactly][.|, please.|?|, please?]",
    "[What do I type|What would I type|How do I write that|What does that look like|Can you show me]?",
]
EXAMPLE_ANSWERS = ["For example: {e}", "Type {e}", "Here is one: {e}"]
PREFIXES = ["Hi, ", "Hello! ", "Hi! ", "Hey, ", "Please, ", "Quick question: ", "Excuse me, ", "Ok, ",
            "Sorry, ", "So, ", "And ", "Now, ", "Another question: ", "Good morning! ", "One more thing: ",
            "Tell me: ", "Hello, ", "Next: ", "Question: ", "Well, ", "I have a question. "]
SUFFIXES = [" Thanks!", " Thank you.", " Please help.", " Thanks.", " I am new here.", " Any idea?",
            " Please answer briefly.", " I forgot.", " Thank you!"]
CONTRACTIONS = [("I would ", "I'd "), ("What is ", "What's "), ("do not ", "don't "), ("does not ", "doesn't "),
                ("is not ", "isn't "), ("cannot ", "can't "), ("I am ", "I'm "), ("will not ", "won't "),
                ("Where is ", "Where's "), ("I have ", "I've "), ("How is ", "How's ")]
SYNONYMS = [("see", "look at"), ("see", "view"), ("find out", "figure out"), ("find out", "tell"),
            ("machine", "computer"), ("machine", "host"), ("machine", "box"), ("show", "display"),
            ("show", "give me"), ("check", "make sure"), ("want to", "would love to"), ("want", "need"),
            ("file", "checkpoint"), ("start", "get going with"), ("my", "the"), ("the", "my"), ("a", "the"),
            ("command", "subcommand"), ("command", "instruction"), ("Which", "What"), ("What", "Which"),
            ("which", "what"), ("the", "this"), ("the", "our"), ("my", "our"), ("I", "we"), ("is", "was"),
            ("model", "network"), ("model", "LLM"), ("use", "employ"), ("get", "obtain"), ("can", "do"),
            ("will", "would"), ("answers", "responses"), ("answer", "reply"), ("question", "query")]
REAL_FLAGS = ("-", "/", "PANTHEON", "the ", "fallback")


class Questioner:
    def __init__(self):
        self.topics = [dict(t, group="commands") for t in grammar.blocks("commands.txt")]
        self.topics += [dict(t, group="flags") for t in grammar.blocks("flags.txt")]
        self.talk = grammar.blocks("smalltalk.txt")
        self.words = grammar.word_lists()

    def topic(self, rng):
        """(topic, question, answer) about a command, a flag or a word of Pantheon."""
        topic = rng.choice(self.topics)
        forms = [f for f, weight in (("v", 6), ("q", 4), ("n", 2)) if f in topic for _ in range(weight)]
        form = rng.choice(forms)
        question, name = self._question(topic, form, rng)
        answers = topic["w"] if name and "w" in topic else topic["a"]
        if name and rng.random() < 0.12:
            question = grammar.fill(grammar.choose(rng.choice(EXAMPLE_ASKS), rng), {"n": name})
            answer = self.example(topic, rng)
        else:
            answer = grammar.choose(rng.choice(answers), rng)
        if not name and rng.random() < 0.1:
            question += " " + self._question(topic, form, rng)[0]
        return topic, roughen(question, rng), answer

    def example(self, topic, rng):
        return grammar.fill(rng.choice(EXAMPLE_ANSWERS), {"e": rng.choice(topic["e"])})

    def more(self, rng):
        """A request for an example of what was just explained."""
        return roughen(grammar.choose(rng.choice(MORE_ASKS), rng), rng)

    def small_talk(self, rng, beyond):
        """(question, answer); beyond: about something that the model does not know."""
        block = rng.choice([t for t in self.talk if ("~" in t["flags"]) == beyond])
        slots = {"num": str(rng.randrange(2, 2000)), "place.off": rng.choice(self.words["place.off"]),
                 "offtopic": rng.choice(self.words["offtopic"]), "job": rng.choice(self.words["job"])}
        question = grammar.fill(grammar.choose(rng.choice(block["q"]), rng), slots)
        return roughen(" ".join(question.split()), rng, 0.4), rng.choice(block["a"])

    def _question(self, topic, form, rng):
        """(question, name); the name is empty unless the question names a command or flag."""
        if form == "q":
            return finish(grammar.choose(rng.choice(topic["q"]), rng), rng), ""
        if form == "v":
            verb = grammar.choose(rng.choice(topic["v"]), rng).strip()
            flag = topic["group"] == "flags" and rng.random() < 0.25
            frame = rng.choice(FLAG_FRAMES if flag else VERB_FRAMES)
            return grammar.fill(frame, {"v": verb, "V": grammar.upper_first(verb),
                                        "v3": third_person(verb)}), ""
        name = rng.choice(topic["n"])
        kind = "flag" if name.startswith("-") else "endpoint" if name.startswith("/") else "command"
        if not name.startswith(REAL_FLAGS) and rng.random() < 0.4 or name.startswith(("--backend", "--version")):
            name = "pantheon " + name if rng.random() < 0.7 else name
        question = grammar.fill(rng.choice(NAME_FRAMES), {"n": name, "kind": kind})
        if name.startswith("the "):
            question = question.replace("`", "").replace("the the", "the")
        return finish(question, rng), name


def finish(question, rng):
    """A closing mark where a template has none."""
    if question[-1:].isalnum() and rng.random() < 0.7:
        question += rng.choice("?.!?")
    return " ".join(question.split())


def third_person(verb_phrase):
    """"list the dies" -> "lists the dies"."""
    verb, _, rest = verb_phrase.partition(" ")
    if verb.endswith(("s", "sh", "ch", "x")):
        verb += "es"
    elif verb.endswith("y") and verb[-2] not in "aeiou":
        verb = verb[:-1] + "ies"
    else:
        verb = {"have": "has", "do": "does", "be": "is"}.get(verb, verb + "s")
    return (verb + " " + rest).strip()


def roughen(question, rng, much=1.0):
    """What people do to a question: greetings, contractions, other words, lost words, slips."""
    if rng.random() < 0.15 * much:
        question = swap_word(question, rng)
    if rng.random() < 0.2:
        for long, short in CONTRACTIONS:
            question = question.replace(long, short)
    if rng.random() < 0.1 and much == 1.0 and question[-1:] in ".?!" and "." not in question[:-1]:
        question = question[:-1] + rng.choice([" with Pantheon", " in Pantheon", " here", " then"]) + question[-1]
    if rng.random() < 0.12 * much:
        prefix = rng.choice(PREFIXES)
        keep = prefix[-2] in "!." or question.startswith(("I ", "I'", "-"))
        question = prefix + (question if keep else grammar.lower_first(question))
    if rng.random() < 0.07 * much:
        question += rng.choice(SUFFIXES)
    if rng.random() < 0.12 * much:
        question = lose_word(question, rng)
    if rng.random() < 0.04:
        question = slip(question, rng)
    case = rng.random()
    if case < 0.12:
        question = question.lower() if case < 0.06 else grammar.lower_first(question)
    if rng.random() < 0.12:
        question = question.rstrip(".?!")
    return question or "Hello"


def swap_word(question, rng):
    padded = " " + question
    for word, other in rng.sample(SYNONYMS, 8):
        if " " + word + " " in padded:
            padded = padded.replace(" " + word + " ", " " + other + " ", 1)
            break
    return padded[1:]


def lose_word(question, rng):
    """Drops one short word without marks; names of commands keep theirs."""
    words = question.split(" ")
    light = [i for i, word in enumerate(words) if word.isalpha() and len(word) < 5 and len(words) > 3]
    if light:
        del words[rng.choice(light)]
    return " ".join(words)


def slip(question, rng):
    """Two neighbouring letters of a longer word change places."""
    words = question.split(" ")
    long = [i for i, word in enumerate(words) if word.isalpha() and len(word) > 4]
    if long:
        i = rng.choice(long)
        at = rng.randrange(1, len(words[i]) - 2)
        word = words[i]
        words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2:]
    return " ".join(words)
