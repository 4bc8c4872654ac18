"""Lists of English words that the lexicon draws from and splits by hash."""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

ACCENTED = "éèêáàäöüñçøåíóúšžłß"

NAMES = """Alice Bob Carol David Emma Frank Grace Henry Irene Jack Karen Liam Maria Noah Olivia Peter
Quinn Rachel Sam Tina Uma Victor Wendy Xavier Yara Zoe Anna Ben Clara Daniel Eva Felix Greta Hugo Ida
Jonas Kira Leo Mia Nina Oscar Paula Ravi Sofia Tom Ursula Vera Walter Ximena Yusuf Ahmed Bianca Chen
Dmitri Elena Fatima George Hana Ivan Julia Kofi Lena Marco Nadia Omar Priya Rosa Stefan Tariq Anita
Bruno Cara Dora Erik Fiona Gina Hector Ines John Jane Mary James Robert Linda Sarah Paul Mark Laura
Simon Kate Luke Amy Max Ella Tim Nora Otto Pia Rita Sven Tara""".split()

CITIES = """Paris London Berlin Madrid Rome Vienna Prague Lisbon Dublin Oslo Stockholm Helsinki Warsaw
Athens Budapest Zurich Geneva Munich Hamburg Milan Naples Porto Seville Boston Chicago Denver Seattle
Austin Dallas Miami Atlanta Toronto Montreal Vancouver Tokyo Osaka Kyoto Seoul Beijing Shanghai
Singapore Bangkok Hanoi Jakarta Manila Delhi Mumbai Chennai Karachi Dubai Cairo Lagos Nairobi Accra
Tunis Sydney Melbourne Perth Auckland Lima Bogota Quito Santiago Brussels Copenhagen Amsterdam Bern
Bremen Bristol Cardiff Cologne Dresden Florence Glasgow Houston Kiev Leeds Lyon Malaga Nice Oxford
Phoenix Portland Riga Tampa Turin Utrecht Valencia Venice York""".split()

WORDS = """apple table river stone cloud garden window bridge candle market silver forest engine
pencil basket ticket orange bottle camera castle circle copper cotton desert dinner doctor dragon
farmer feather finger flower guitar hammer harbor island jacket kitchen ladder lemon letter lion
magnet mirror monkey morning mountain needle ocean onion paper parrot pepper piano pillow planet
pocket potato rabbit radio ribbon rocket salad saddle school shadow spider spoon square station
summer sunset temple thunder tiger tomato tower train tunnel valley velvet village violin wagon
water whistle winter wizard yellow zebra green purple brown white black cheap fresh quiet heavy
light modern ancient simple broken golden frozen hidden empty sweet bitter sharp gentle rapid
morning lamp chair desk shelf carpet curtain kettle plate fork knife bowl glass towel soap brush
shoes boots gloves scarf belt shirt coat hat ring watch wallet bag umbrella bicycle truck boat
plane hotel museum library theater cinema bakery pharmacy hospital office factory airport beach
lake hill cave island field barn fence gate road street corner tea coffee milk bread cheese butter
honey sugar salt rice pasta soup steak pizza burger cake cookie cherry grape melon peach plum pear
music novel poem story report budget invoice meeting project review lesson course exam holiday
wedding concert party match race camp trip tour visit""".split()

# Nouns and verbs of tools that are assembled at random.
NOUNS = """order invoice ticket account booking report package room lamp pump door sensor camera song
recipe course student patient contract coupon device employee event file folder flight game gate image
item job journal key lesson loan locker machine meal meeting member menu message movie note office
page parcel payment photo plan playlist poll post price printer product profile project queue quote
receipt record refund rack request reservation review robot route sample schedule server session
shipment shop signal stock store subscription survey table task team template test trip truck user
vehicle video visit wallet warehouse window worker zone""".split()

VERBS: dict[str, tuple[str, ...]] = {
    "get": ("get", "show me", "look up", "fetch", "give me"),
    "find": ("find", "look for", "search for", "locate"),
    "create": ("create", "make", "add", "set up"),
    "delete": ("delete", "remove", "erase", "get rid of"),
    "update": ("update", "change", "edit"),
    "send": ("send", "dispatch"),
    "check": ("check", "inspect", "verify"),
    "start": ("start", "begin", "launch", "turn on"),
    "stop": ("stop", "halt", "end", "turn off"),
    "book": ("book", "reserve"),
    "cancel": ("cancel", "call off"),
    "order": ("order", "buy"),
    "count": ("count", "tell me the number of"),
    "rate": ("rate", "score"),
    "print": ("print",),
    "track": ("track", "follow"),
    "open": ("open", "unlock"),
    "close": ("close", "shut"),
    "rename": ("rename",),
    "move": ("move", "shift"),
    "share": ("share",),
    "list": ("list", "show"),
    "compare": ("compare",),
    "schedule": ("schedule", "plan"),
    "archive": ("archive", "put away"),
    "approve": ("approve", "accept", "say yes to"),
    "reject": ("reject", "refuse"),
    "assign": ("assign", "hand over"),
    "export": ("export",),
    "upload": ("upload",),
    "download": ("download",),
    "reset": ("reset", "set back"),
    "lock": ("lock",),
    "pay": ("pay", "settle"),
    "clean": ("clean", "wash"),
    "repair": ("repair", "fix", "mend"),
    "record": ("record", "log", "note down"),
    "pause": ("pause", "hold"),
    "resume": ("resume", "go on with", "continue"),
    "submit": ("submit", "hand in"),
    "sell": ("sell",),
    "scan": ("scan",),
    "publish": ("publish", "release"),
    "restore": ("restore", "bring back"),
    "install": ("install",),
    "convert": ("convert", "turn over"),
    "calculate": ("calculate", "compute", "work out"),
    "read": ("read",),
    "write": ("write",),
    "notify": ("notify", "tell", "inform"),
    "pack": ("pack",),
    "paint": ("paint", "color"),
    "test": ("test", "try out"),
    "split": ("split", "divide"),
    "copy": ("copy", "duplicate"),
    "assess": ("assess", "judge"),
}
