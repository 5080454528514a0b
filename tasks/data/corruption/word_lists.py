"""Closed word lists of the synthetic errors: function words, confusions of learners, irregular forms, common words."""

# ruff: noqa: SIM905 (word lists read better as running text)
from __future__ import annotations

ARTICLES = ("the", "a", "an")
DETERMINERS = frozenset(
    (*ARTICLES, *"this that these those my your his her its our their some any no every each another "
     "much many several few both all either neither such what which whose 's '".split())
)  # fmt: skip
PREPOSITIONS = frozenset(
    "of in to for with on at by from about into through over between under against during without within among "
    "toward towards upon across behind beyond around along near since until".split()
)
CONJUNCTIONS = frozenset("and or but because while when where if although though as than that whether so".split())
MODALS = ("can", "could", "will", "would", "may", "might", "shall", "should", "must")
BE, HAVE, DO = ("is", "are", "was", "were", "am"), ("has", "have", "had"), ("does", "do", "did")
FUNCTION = frozenset(
    (*DETERMINERS, *PREPOSITIONS, *CONJUNCTIONS, *MODALS, *BE, *HAVE, *DO, "be", "been", "being", "not", "n't",
     *"i you he she it we they me him us them who whom there here also however only very too more most less least "
     "other then now just even still up down out off again once mr mrs one two three first second".split())
)  # fmt: skip

# What a learner writes instead, most typical first, based on the most common prepositions after verbs and nouns.
PREPOSITION_CONFUSIONS: dict[str, str] = {
    "of": "in for on about from", "in": "on at of to into during", "to": "for in of with at", "for": "to of in on",
    "with": "by to of for from", "on": "in at of about for", "at": "in on to", "by": "with from through of",
    "from": "of by in since", "about": "of on for", "into": "in to", "through": "by with from", "during": "in at",
    "between": "among of", "among": "between in", "over": "on above in", "under": "in below", "since": "from for",
    "until": "by to", "within": "in inside", "without": "with", "against": "to with for", "towards": "to on",
    "toward": "to on", "after": "since behind", "before": "until", "around": "in about", "across": "over in",
    "upon": "on in", "along": "on by",
}  # fmt: skip

# Groups whose members are confused with each other: collocations, homophones, near-synonyms.
CONFUSIONS: tuple[str, ...] = (
    "affect effect", "then than", "their there they", "its it's", "to too", "lose loose", "accept except",
    "advice advise", "quite quiet", "whether weather", "who which", "who whom", "make do", "made did", "say tell",
    "said told", "big large great", "small little", "high tall", "many much", "few little", "fewer less",
    "look see watch", "learn study", "raise rise", "lay lie", "bring take", "come go", "listen hear", "speak talk",
    "find found", "job work", "trip travel", "people persons", "child kid", "problem trouble", "important main",
    "such so", "so very", "other another", "others other", "like as", "because since", "although despite",
    "however but", "especially specially", "economic economical", "historic historical", "every all", "each every",
    "beside besides", "later latter", "principal principle", "passed past", "among between", "maybe perhaps",
    "cause make", "gain get", "obtain get", "increase grow", "decrease reduce", "show present", "use utilize",
    "start begin", "started began", "end finish", "build make", "built made", "give provide", "gave provided",
    "help assist", "need require", "want hope", "think consider", "believe think", "know understand", "keep remain",
    "become get", "became got", "allow let", "cost price", "way method", "kind type", "part piece", "place area",
    "number amount", "level degree", "reason cause", "result effect", "change alter", "fast quick", "hard difficult",
    "easy simple", "near nearly", "late lately", "wide broad", "strong powerful", "rich wealthy", "new novel",
    "old ancient", "good well", "bad badly", "real really", "first firstly", "recent recently", "some any",
    "can able", "never ever", "yet already", "also too", "human people", "often usually", "usually always",
    "whole all", "most mostly", "almost most", "form from", "were where", "of off", "thing think", "live leave",
    "life live", "lives live", "belief believe", "proof prove", "choose chose", "lead led", "success succeed",
    "safe safety", "health healthy", "difference different", "importance important", "ability able", "death dead",
    "economy economic", "politics political", "develop development", "science scientific", "technology technological",
)  # fmt: skip
PRONOUN_CONFUSIONS: dict[str, str] = {
    "it": "they them this", "they": "it he we", "them": "it they", "its": "their it his", "their": "its his our",
    "this": "these that it", "these": "this those", "that": "this those", "those": "these that", "he": "they him",
    "she": "he they", "him": "he them", "his": "their her him", "her": "his their", "us": "we", "we": "they us",
    "our": "their", "i": "we me", "you": "we", "your": "their", "which": "that what", "who": "that which",
    "what": "that which",
}  # fmt: skip
MODAL_CONFUSIONS: dict[str, str] = {
    "can": "could will", "could": "can would", "will": "would can", "would": "will could", "may": "can",
    "might": "may can", "should": "shall must", "must": "should", "shall": "will",
}  # fmt: skip
LINKING = ("and", "also", "so", "then", "but", "thus", "besides")
EXTRA = ("of", "to", "is", "also", "for", "in", "more", "very", "so", "it", "and", "that", "all", "own", "up", "about")
UNCOUNTABLE = frozenset(
    "information evidence advice research knowledge equipment furniture software music traffic homework progress "
    "surveillance weather money food water health education literature work housing travel luggage employment "
    "pollution poverty violence damage energy agriculture biology warfare trade privacy".split()
)
IRREGULAR_PLURALS: dict[str, str] = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "life": "lives", "foot": "feet",
    "tooth": "teeth", "mouse": "mice", "wife": "wives", "half": "halves", "leaf": "leaves", "knife": "knives",
    "phenomenon": "phenomena", "criterion": "criteria", "crisis": "crises", "analysis": "analyses",
    "basis": "bases", "hypothesis": "hypotheses", "self": "selves", "thief": "thieves", "wolf": "wolves",
}  # fmt: skip
IRREGULAR_VERBS: dict[str, tuple[str, str]] = {
    base: (past, participle)
    for base, past, participle in (
        entry.split("/")
        for entry in (
            "become/became/become begin/began/begun break/broke/broken bring/brought/brought build/built/built "
            "buy/bought/bought catch/caught/caught choose/chose/chosen come/came/come draw/drew/drawn "
            "drink/drank/drunk drive/drove/driven eat/ate/eaten fall/fell/fallen feel/felt/felt fight/fought/fought "
            "find/found/found fly/flew/flown forget/forgot/forgotten get/got/got give/gave/given go/went/gone "
            "grow/grew/grown hear/heard/heard hide/hid/hidden hold/held/held keep/kept/kept know/knew/known "
            "lead/led/led leave/left/left lose/lost/lost make/made/made mean/meant/meant meet/met/met pay/paid/paid "
            "ride/rode/ridden rise/rose/risen run/ran/run say/said/said see/saw/seen sell/sold/sold send/sent/sent "
            "show/showed/shown sing/sang/sung sit/sat/sat sleep/slept/slept speak/spoke/spoken spend/spent/spent "
            "stand/stood/stood steal/stole/stolen swim/swam/swum take/took/taken teach/taught/taught tell/told/told "
            "think/thought/thought throw/threw/thrown understand/understood/understood wear/wore/worn win/won/won "
            "write/wrote/written bear/bore/born forbid/forbade/forbidden spread/spread/spread put/put/put "
            "set/set/set cut/cut/cut let/let/let hit/hit/hit cost/cost/cost"
        ).split()
    )
}
