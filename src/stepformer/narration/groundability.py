"""How likely a camera would see a phrase: a small score from short lists of our own and the shape of words.

The lists are not a lexicon of norms: they name the hand work and the things of how-to videos, so that a user can
leave out "make a decision" and keep "make a cut". Words on no list get a middle value.
"""

from __future__ import annotations

from stepformer.narration.lexicon import CHATTER_OBJECTS, OBJECT_PRONOUNS, STOP_VERBS, TIME_NOUNS, word_set

PHYSICAL_VERBS = word_set(
    # kitchen
    "add bake baste beat blanch blend boil bone bread brew broil brown brush butter carve chill chop coat combine "
    "cook cool core cover crack cream crimp crush cube cut deglaze dice dip dissolve drain dredge drizzle drop "
    "dry dust fill fillet flip flour fold freeze frost fry garnish glaze grate grease grill grind heat ice juice "
    "julienne knead layer line mash marinate measure melt microwave mince mix oil parboil peel pinch pipe pit "
    "poach pop pour preheat press puree reduce reheat rest rinse roast roll rub salt saute scald scoop score "
    "scramble sear season separate serve shape shred shuck sift simmer skewer skim slice smash smear soak soften "
    "spoon spread sprinkle squeeze steam steep stew stir strain stuff sweeten swirl tenderize thaw thicken thin "
    "toast top toss trim truss whip whisk wrap zest "
    # workshop, house, garden, car
    "adjust align apply assemble attach bend bleed bolt bore buff build bury caulk charge chisel clamp clean clip "
    "close connect crank cut detach dig disassemble disconnect drag drill drive dump empty engage extend fasten "
    "feed file fit fix flatten flush glue grab grip hammer hang hold hook inflate insert install jack jam join "
    "lay level lift light lock loosen lower lubricate mark mop mount mow nail open pack paint patch peg place "
    "plane plant plaster plug polish position prime prop prune pry pull pump punch push put raise rake reach "
    "reattach reassemble reconnect release remove replace rip rotate sand saw scrape screw scrub seal secure set "
    "sharpen shake shift shovel shut slide snap solder sow spin splice spray stack staple stick straighten strap "
    "stretch strip stroke stuff support suspend sweep swing switch tack tape tap tear test thread throw tie "
    "tighten tile tilt tip tow trace transfer transplant tug turn twist unbolt unclip uncover unfold unhook "
    "unlock unplug unroll unscrew untie unwrap vacuum wash water wax wedge weigh weld wet wind wipe wire wring "
    "yank zip "
    # cloth, paper, hair, face, music, body, screen
    "baste bind bag braid bundle button cast color comb crease crochet curl dab decorate draw dress drape "
    "embroider fasten feather fray gather gloss hem highlight iron knit knot lace lather loop massage moisturize "
    "outline pat pick pin pleat pluck poke press print rinse scratch section sew shave sketch smooth spritz "
    "stitch string tease thread tuck weave blow breathe bow jump kick kneel punch squat stand step stretch strum "
    "touch click copy crop delete download drag enter erase export highlight import launch load paste reboot "
    "resize restart scroll select swipe tap type unlock unzip zoom leave take move bring get use check carry hit "
    "catch collect throw "
)
_ABSTRACT_VERBS = word_set(
    "achieve affect assume avoid be believe consider create decide deserve determine develop discuss do enjoy "
    "ensure expect experience explain have hope imagine improve increase involve know like love mean need offer "
    "prefer prevent promise provide realize recommend remember represent require suggest support talk think "
    "understand want wish guarantee"
)
CONCRETE_NOUNS = word_set(
    "apple apples bacon bag balloon banana basil basket batter battery beans beef blade board bolt bolts bottle "
    "bow bowl box bracket brake brakes bread broth brush bucket bulb burner butter button cabbage cable cake "
    "camera can candle canvas cap card carrot carrots case celery cell chain chair cheese cherry chicken chip "
    "chips chocolate cilantro clamp clay cloth clove cloves coat coffee collar comb connector container cookie "
    "cookies cord cork corks corn counter cover cream crust cup cups curtain cutter cylinder dish dirt dog door "
    "dough drawer drill egg eggs edge edges engine fabric face fan faucet filling filter finger fingers fish "
    "flesh floor flour flower foam foil fork frame fridge fruit garlic gasket gear ginger glass glove gloves glue "
    "grass grill ground guitar hair hammer hand handle hands hat head heat hinge hole holes honey hood hook hose "
    "ice icing iron jack jar joint juice ketchup key knife knob ladder lamp layer leaf leather leaves leek leg "
    "lemon lens lettuce level lever ligature light lime line lips liquid liquids log loop lid machine mask mat "
    "meat milk mint mixer mixture mold mouth mouthpiece mug mushroom mushrooms mustard nail nails neck needle net "
    "noodle noodles nut nuts oil olive onion onions oven paint pan panel paper parsley part parts paste pasta "
    "pastry patch pattern pea peas pedal peel pen pencil pepper peppers piece pieces pin pipe pizza plant plate "
    "plug pot potato potatoes powder puck pump rack rag reed ribbon rice ring rod roller roof root roots rope "
    "rubber rug ruler salad salmon salt sauce sausage saw scissors screw screwdriver screws seal seam seasoning "
    "seat seed seeds sheet shelf shirt shoe shrimp sink skillet skin sleeve slice slices slot soap socket soil "
    "soup spatula spice spices spinach spoon sponge spray spring stain steak stem stencil stick sticks stitch "
    "stock stove strap straw string strip strips stud sugar surface switch syrup table tank tap tape tea terminal "
    "thermometer thread tie tile tin tip tire tires toast tofu tomato tomatoes tool tools tooth towel tray tree "
    "tube tuna tub valve vanilla vegetable vegetables vent vinegar wall washer water wax wheel window wine wing "
    "wire wires wood wool wrap wrench wrist yarn yeast yogurt zipper barrel bell bridge blender bone bones bun "
    "buns breast thigh patty dressing marinade shell rind stalk jumper cables nozzle lug spoke rim pad pads rotor "
    "caliper screwdrivers motherboard router screen menu icon app file"
)
_ABSTRACT_NOUNS = word_set(
    "idea time way thing sense difference job care reason problem question attention experience result advantage "
    "benefit choice decision chance amount information knowledge process method technique style look feeling "
    "flavor taste texture consistency issue situation case fact example effort progress purpose plan goal rule "
    "option opportunity risk success beginning life day week year minute hour video channel recipe story name "
    "word money price fun luck love hope trouble"
)
_ABSTRACT_ENDINGS = ("tion", "sion", "ness", "ity", "ance", "ence", "ship", "hood", "ism", "logy", "acy")


def verb_score(verb: str) -> float:
    """How physical a verb (lemma) is, in [0, 1]."""
    if verb in PHYSICAL_VERBS:
        return 1.0
    if verb in _ABSTRACT_VERBS:
        return 0.1
    return 0.25 if verb in STOP_VERBS else 0.6


def noun_score(noun: str) -> float:
    """How tangible the head noun of an object is, in [0, 1]."""
    if not noun:
        return 0.4
    if noun in CONCRETE_NOUNS or noun.rstrip("s") in CONCRETE_NOUNS:
        return 1.0
    if noun in OBJECT_PRONOUNS:
        return 0.5
    if noun in _ABSTRACT_NOUNS or noun in CHATTER_OBJECTS or noun in TIME_NOUNS:
        return 0.1
    return 0.2 if len(noun) > 6 and noun.endswith(_ABSTRACT_ENDINGS) else 0.6


def groundability(verb: str, noun: str, *, chatter: bool = False, negated: bool = False, second: str = "") -> float:
    """Score of a phrase in [0, 1]: the geometric mean of verb and noun, a little more with a second tangible thing.

    What must not be done is not seen, and chatter hardly ever is.
    """
    score: float = (verb_score(verb) * noun_score(noun)) ** 0.5
    if second:
        score = 0.85 * score + 0.15 * noun_score(second)
    if negated:
        score *= 0.3
    return round(score * (0.3 if chatter else 1.0), 3)
