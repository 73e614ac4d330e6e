"""Small word lists, written for this product: what speech is made of beside the words that matter."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


FILLERS = word_set("um uh er erm uhm uhh umm hmm hm mm mhm ah eh huh oh ooh aah whoa uh-huh mm-hmm")
# dropped out of noun phrases and verb groups where the parser left them in
SOFTENERS = word_set(
    "just really basically actually literally simply kinda sorta like also maybe probably please well okay ok"
)

# verbs that lead to another verb ("you want to go ahead and add …"): never the head of a phrase with a clause below
LIGHT_VERBS = word_set(
    "want wanna need go gon gonna try start begin keep continue like love have got get be let make help remember "
    "forget plan decide prefer come finish proceed tend choose hope learn manage intend suppose wish hate mean "
    "seem happen"
)
# a negation on these is about the wish, not about the act that follows
NOT_NEEDED = word_set("have need got require mind suppose")
NOT_OMITTED = word_set("forget fail hesitate neglect afraid")  # "don't forget to add" asks for it
STOPPING = word_set("stop avoid quit skip prevent cease resist")  # "avoid touching the blade"

# mental, social and stative verbs: what is said around the steps
STOP_VERBS = word_set(
    "be have want need like love hate think know believe guess hope wish feel seem mean understand remember "
    "forget see watch hear listen say tell talk speak ask answer thank welcome greet introduce show explain teach "
    "learn describe mention discuss call name recommend suggest promise subscribe follow comment share click join "
    "visit support sponsor enjoy appreciate prefer hate miss expect imagine wonder suppose consider decide agree "
    "matter depend happen become stay live work own belong contain consist include cost buy purchase order find "
    "eat drink taste smell try go come look notice realize recognize excuse apologize laugh joke bother worry "
    "care let help mind deserve earn spend save stop start begin end continue keep finish allow cause require "
    "involve give do guarantee owe lack exist appear remain last vary wait deal figure read write film record "
    "upload post tag meet bring hit smash ring cry"
)
# of these, the ones that are steps all the same when they have a thing to act on
STEP_WHEN_CONCRETE = word_set(
    "find save stop start finish keep bring hit ring order buy click give try show taste smell call wait look "
    "read write record join share tag post upload continue begin follow"
)
CHATTER_OBJECTS = word_set(
    "video videos channel subscription subscribe link links comment comments notification notifications "
    "description instagram facebook twitter youtube patreon website blog page podcast episode series tutorial "
    "tutorials playlist thumb thumbs like likes question questions look time idea sense difference way thing "
    "things fun luck care job point story reason problem trouble mind attention lot viewer viewers subscriber "
    "subscribers guy guys friend friends news newsletter email giveaway sponsor code discount review opinion "
    "feedback advice tip tips experience chance favor pleasure mistake mistakes everybody everyone anyone "
    "somebody someone nobody nothing life love rest weekend hope sign feeling feelings word words talk "
    "conversation fan fans deal sort kind everything anything something"
)
# what may stand as "thing" in a step although it is on the list above
CHATTER_VERBS = word_set("subscribe comment thank welcome sponsor introduce")

# light verb + noun of action: "give it a stir"
GIVE_VERBS = word_set("give take have do")
ACTION_NOUNS = {
    word: word
    for word in [
        "stir",
        "mix",
        "shake",
        "rinse",
        "wash",
        "flip",
        "toss",
        "squish",
        "wipe",
        "clean",
        "turn",
        "twist",
        "pull",
        "push",
        "whisk",
        "trim",
        "scrub",
        "brush",
        "polish",
        "buff",
        "squeeze",
        "spray",
        "tap",
        "press",
        "rub",
        "dust",
        "sweep",
        "blend",
        "stretch",
        "massage",
        "soak",
        "toast",
        "knead",
        "pat",
        "poke",
        "stab",
        "sand",
        "squirt",
        "swirl",
        "sprinkle",
        "drizzle",
        "spin",
        "tug",
        "crank",
        "pump",
        "dry",
        "fluff",
        "scrape",
        "smash",
        "spritz",
        "wiggle",
    ]
} | {"cleaning": "clean", "wash-down": "wash", "mixing": "mix", "sanding": "sand", "coating": "coat", "whirl": "blend"}

PARTICLES = word_set(
    "up down in out on off over away back together apart aside under through around along forward onto inside "
    "outside open shut loose"
)
# verbs that make no sense without an object: a bare one takes the object of the verb before or after it
TRANSITIVE = word_set(
    "put place add take throw set bring lay insert attach remove pour cut chop slice drop toss stick slide push "
    "pull wrap cover turn plug screw lift hang pop tip dump transfer move fold roll press hold peel grate mash "
    "drain rinse wash dry fry bake boil grill roast clean wipe scrub sand paint glue drill fill tie clip pin "
    "thread loosen tighten open close"
)
# verbs that speakers leave the object out of, once it is known: "stir well", "cook for ten minutes"
ELIDING = word_set(
    "mix stir cook fry bake boil simmer whisk blend beat chop slice dice cut serve season roll fold knead drain rinse "
    "mash grate peel spread flip toss cover marinate saute roast grill chill refrigerate freeze heat steam drizzle "
    "sprinkle shake press twist tighten loosen screw unscrew push pull sand paint wipe scrub dry soak strain squeeze "
    "garnish combine reheat sear brown deglaze broil toast puree grind crush wrap seal tie glue iron polish trim sew "
    "pin attach insert remove install"
)
# things put together: "mix the flour and sugar" is one act on two things
TOGETHER = word_set(
    "mix combine join connect blend whisk merge unite pair mingle tie beat cream alternate separate toss marry bind"
)

PERSONS = word_set("'s us i you we they he she who y'all ya people everyone everybody someone somebody guys chef")
PERSON_NOUNS = word_set(
    "chef cook mom mum dad mother father wife husband friend guy guys girl boy man woman people person kids child "
    "children baker mechanic carpenter plumber teacher student doctor nurse lady gentleman owner team crew host "
    "worker farmer artist player barber stylist tailor gardener electrician painter expert pro"
)
NON_OBJECTS = word_set(
    "you me us him her myself yourself yourselves ourselves himself herself themselves itself what who whom which "
    "that's whatever whichever how why when where lot so there here one's 's s i we he she 're"
)
OBJECT_PRONOUNS = word_set("it them they this these that those one ones some both all each half")

# words that say nothing about a step wherever they stand
EMPTY_WORDS = word_set(
    "here there now then so too very really just right ok okay also well again not n't going gonna nice good great "
    "guys guy video thing things way sure lot kind sort actually basically pretty already maybe like little bit "
    "course next more much today first one ones same other else else's even still only up down out"
)

# amounts and parts: "a little bit of soy sauce" is about the sauce
MEASURES = word_set(
    "amount bag batch bit bits bottle bowl box bunch can carton chunk chunks clove cloves couple cup cups dash dollop "
    "drizzle drop drops gallon glass gram grams half handful head inch jar kilo kind knob layer liter litre little lot "
    "lots mixture ounce ounces pack package packet pair part piece pieces pinch pint pound pounds quart quarter rest "
    "sheet slice slices sort spoon spoonful splash sprinkle sprig stalk stick sticks strip strips tablespoon "
    "tablespoons teaspoon teaspoons third tin touch type ton tons"
)

# prepositional phrases that say nothing about where or with what
EMPTY_PREPS = word_set(
    "like because as since before after until till during without than besides despite per except unlike "
    "including about regarding by that of if"
)
EMPTY_PREP_OBJECTS = word_set(
    "point moment video camera case way course example you me us him her them time times reason future beginning "
    "fact general meantime meanwhile today tomorrow yesterday week day days channel addition instance sake sure "
    "all order front hand account mean means step process stage now then here there guys everyone everybody "
    "yourself myself life that this what which whatever part yourselves ourselves"
)
# a verb without an object makes a phrase with these: "tap on network", "saw along the line"
REACHING_PREPS = word_set(
    "on onto in into along across over around through behind under to for from at inside between toward towards "
    "against past up down off out near beneath underneath"
)
MOTION = word_set(
    "go come get be start begin stop end work live stay move continue head stick talk deal wait work fit sit "
    "stand happen"
)

TIME_NOUNS = word_set(
    "minute minutes second seconds hour hours day days week weeks month months year years time times moment while "
    "today tomorrow night morning afternoon evening bit inch inches degree degrees percent half way kind sort "
    "type lot couple video channel guy guys people step point thing side sides end"
)
CONTAINERS = word_set(
    "bowl pan pot skillet oven fridge refrigerator freezer jar bucket sink tray dish plate mold tin box bag sheet "
    "glass cup mug wok blender processor grill stove table board counter hole slot rack container tub drawer "
    "cabinet towel"
)
