"""How likely a camera would see a phrase: a small score from short lists of our own and the shape of words.

The lists are not a lexicon of norms: they name the hand work and the things of how-to videos, so that a user can
leave out "make a decision" and keep "make a cut". Nouns on no list are placed by their vectors; what has none gets a
middle value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.narration.lexicon import (
    CHATTER_OBJECTS,
    OBJECT_PRONOUNS,
    PERSON_NOUNS,
    STOP_VERBS,
    TIME_NOUNS,
    word_set,
)

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
    # more of all kinds
    "arrange break burn chunk compress crisp crumble discard distribute divide drip ferment flake fluff form grasp "
    "incorporate infuse insulate lather lean lengthen marbleize nest notch overlap pack peel pickle pierce pile "
    "pound prep prepare prick refrigerate refill repot reposition rearrange return rim ring rinse roll scatter "
    "scorch sear shear shorten sift sink slather slip slit smoke snip soap splash split spoon squash squish stain "
    "stamp steady store submerge swab swap swish tamp tape temper trowel turn unbox unfasten unpack unscrew unstack "
    "unstrap unwind warm whittle widen wiggle"
)
# hand work that says little by itself: what it is done to and where must say the rest
VAGUE_VERBS = word_set("use get take put bring leave hold check set turn keep hit reach move catch carry")
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
    "caliper screwdrivers motherboard router screen menu icon app file "
    # food
    "almond almonds anchovy apricot artichoke arugula asparagus aubergine avocado bagel basmati bay bean beet "
    "beetroot beer berries berry biscuit blueberries bouillon bourbon breadcrumb breadcrumbs breasts brisket "
    "broccoli brownie bulgur burger buttermilk calamari cappuccino caramel cardamom carcass cashew cashews "
    "cauliflower caviar cayenne cereal cheddar cherries chestnut chickpea chickpeas chili chilies chilli chives "
    "chutney cider cinnamon clam clams cocoa coconut cod coriander cornflour cornmeal cornstarch cottage crab "
    "cracker crackers crouton croutons crumb crumbs cucumber cucumbers cumin curd curry custard dal dill dip dog "
    "dogs dressings duck dumpling dumplings edamame eggplant fat feta fennel fig filet fillet fillets fries "
    "frosting gelatin ghee glaze grape grapes gravy ham hamburger hazelnut herb herbs hummus ingredient "
    "ingredients jalapeno jam jelly kale kebab kidney kimchi kiwi lamb lard lasagna lemongrass lemons lentil "
    "lentils limes liver lobster loaf macaroni mango margarine marinara marshmallow masala mayo mayonnaise "
    "meatball meatballs melon meringue mirin miso molasses mozzarella mussel mussels nori nutmeg oat oats octopus "
    "okra omelette orange oregano oyster oysters pancake pancakes paneer paprika parmesan parsnip patties pea "
    "peach peanut peanuts pear pecan peppercorn peppercorns pickle pickles pie pineapple pita plum pork prawn "
    "prawns pudding pumpkin puree quinoa radish raisins raspberry ribs roast roll rolls rosemary saffron salami "
    "salsa sandwich sauces sauerkraut sausages scallion scallions scallop scallops seafood seaweed sesame shallot "
    "shallots shortening sirloin smoothie soda soy spaghetti sprig sprout sprouts squash squid starch stew "
    "strawberries strawberry stuffing sushi taco tahini tamarind thyme thighs toppings topping tortilla tortillas "
    "turkey turmeric turnip veal veggie veggies vodka waffle walnut walnuts wasabi watermelon whisky wings wonton "
    "wrapper wrappers yolk yolks zest zucchini flakes fillings drumstick drumsticks leftovers slaw salads "
    "lettuces "
    # kitchen, workshop, house, garden, car, cloth, screen
    "airbag aluminum apron axle ball balls band bandage bar barbecue base bead beads bearing bed belt bench bin "
    "blanket blinds block blocks bobbin bolts bookcase boot boots bracelet bricks broom brick bristles broiler "
    "brushes bumper bush cabinet cage candy cardboard caulk cement chalk charcoal chisel circle cleaner clip "
    "clips clippers colander compost concrete cooker corner corners cotton crank cuff cushion cut dashboard deck "
    "detergent diaper dials disc dishes dispenser dowel drain drum duct dust earring elastic electrode envelope "
    "eraser eyeliner eyeshadow fabrics fence fender fertilizer flame flap floss fold foot foundation funnel "
    "furniture fuse garment gauge gel grate grater grease griddle grinder grout gun gutter hanger headlight "
    "heater hem hoop incision ink insulation jeans jug keyboard kettle kit lace lacquer ladle lash lashes lawn "
    "lid lids lightbulb lipstick lotion lumber magnet marker mascara mesh microwave mirror mop mortar motor mouse "
    "mulch nut oar outlet packet pads pallet pans paintbrush pants parchment peg pestle petal petals phone photo "
    "pick pillow pins pistons piston planks plank plants plastic plates pliers pocket pole polish pots pouch "
    "primer printer propeller quilt radiator rake rails rail razor rivet saucepan sandpaper scale scarf scraper "
    "sealant seams serum shampoo shears shingles shovel shower sidewall sieve skewer skewers skirt slab slit sock "
    "socks sofa spatula spindle splinter sprayer staple staples steamer stencils stones stone stool strainer "
    "straps stump tablet tail tarp tent thermostat toilet tongs toothbrush toothpaste toothpick toothpicks torch "
    "trap trim trowel trunk tweezers twine vacuum varnish vase veneer vise wallpaper washers weed weeds whisk "
    "wick wok zip "
)
_ABSTRACT_NOUNS = word_set(
    "idea time way thing sense difference job care reason problem question attention experience result advantage "
    "benefit choice decision chance amount information knowledge process method technique style look feeling "
    "flavor taste texture consistency issue situation case fact example effort progress purpose plan goal rule "
    "option opportunity risk success beginning life day week year minute hour video channel recipe story name "
    "word money price fun luck love hope trouble"
)
_UNKNOWN = 0.6  # on no list, and no vector
_MIDDLE = 0.55  # as near to things as to the rest
_NEAREST = 5  # words of either kind that a word is compared with
_ABSTRACT_ENDINGS = ("tion", "sion", "ness", "ity", "ance", "ence", "ship", "hood", "ism", "logy", "acy")


def verb_score(verb: str) -> float:
    """How physical a verb (lemma) is, in [0, 1]."""
    if verb in VAGUE_VERBS:
        return 0.8
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
        return 0.4
    if noun in _ABSTRACT_NOUNS or noun in CHATTER_OBJECTS or noun in TIME_NOUNS:
        return 0.1
    return 0.2 if len(noun) > 6 and noun.endswith(_ABSTRACT_ENDINGS) else _UNKNOWN


class NounScores:
    """:func:`noun_score`, with words on no list placed between the lists by the parser's own word vectors.

    A word's place is its likeness to the nearest words that name things, less that to the nearest ones that do
    not. Pipelines without vectors leave it at the middle.
    """

    def __init__(self, nlp: Any) -> None:
        self._seen: dict[str, float] = {}
        self._vectors: Any = nlp.vocab.vectors
        self._things = self._rows(sorted(CONCRETE_NOUNS))  # (A, D)
        self._others = self._rows(sorted(_ABSTRACT_NOUNS | CHATTER_OBJECTS | TIME_NOUNS | PERSON_NOUNS))  # (B, D)

    def __call__(self, noun: str) -> float:
        """How tangible the noun is, in [0, 1]."""
        found = self._seen.get(noun)
        if found is None:
            if len(self._seen) > 50_000:  # broken text has no end of new words
                self._seen.clear()
            found = self._seen[noun] = self._find(noun)
        return found

    def _find(self, noun: str) -> float:
        known = noun_score(noun)
        if known != _UNKNOWN:
            return known
        row = self._rows([noun])
        if not (len(row) and len(self._things) >= _NEAREST and len(self._others) >= _NEAREST):
            return known
        near, far = (np.sort(rows @ row[0])[-_NEAREST:].mean() for rows in (self._things, self._others))
        return float(np.clip(_MIDDLE + 1.5 * (near - far), 0.2, 0.95))

    def _rows(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of the words that have one; the vocabulary learns nothing by it."""
        from spacy.strings import get_string_id

        if not self._vectors.size or getattr(self._vectors, "mode", "default") != "default":
            return np.zeros((0, 0), np.float32)
        at = self._vectors.find(keys=[get_string_id(word) for word in words])
        rows = np.asarray(self._vectors.data[at[at >= 0]], np.float32)
        length = np.linalg.norm(rows, axis=1)
        unit: NDArray[np.float32] = rows[length > 0] / length[length > 0, None]
        return unit


def groundability(
    verb: str,
    noun: str,
    *,
    chatter: bool = False,
    negated: bool = False,
    second: str = "",
    tangible: Callable[[str], float] = noun_score,
) -> float:
    """Score of a phrase in [0, 1]: the geometric mean of verb and noun, a little more with a second tangible thing.

    ``tangible`` scores nouns. What must not be done is not seen, and chatter hardly ever is.
    """
    score: float = (verb_score(verb) * tangible(noun)) ** 0.5
    if second:
        score = 0.85 * score + 0.15 * tangible(second)
    if negated:
        score *= 0.3
    return round(score * (0.3 if chatter else 1.0), 3)
