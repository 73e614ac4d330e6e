"""Forms of names: what a narrator says, as imperatives of at most eight words."""

from __future__ import annotations

import pytest

from stepformer.app.spoken import SHOWN_SAID, candidates
from stepformer.base import weights
from stepformer.encoders.name_classifier import default_name_classifier
from stepformer.narration import Cue, Phrase, extract_phrases
from stepformer.narration.imperative import MOST_WORDS, name_forms

WANTED_FOUND, MADE_RIGHT = 0.4, 0.7  # shares, at least

# what is said -> names that must be among its forms; behind an empty arrow: nothing here names a step
SAID = """
Cut along the lines with a saw and screw through the panel into the wood. ->
    cut along the lines with a saw; screw through the panel into the wood
I have the bike on a stand, but you can lean it on a wall. ->
Lay the front piece down with the pretty side facing up. -> lay down the front piece
in goes the garlic and stir it -> add the garlic; stir it
these two dowels go into the holes -> put the two dowels into the holes
And that's going in the oven for an hour. A little goes a long way. -> put it in the oven
He goes into the kitchen. The screw that goes into the hole is long. ->
take the racks and scrub 'em with steel wool -> take the racks; scrub the racks with steel wool
then i'm just going to use a little bit and put on my face -> put it on the face
Toner helps prepare my skin for the serum. Pour the toner on a pad. -> pour the toner on a pad
flip the dough into the basket, seam side up -> flip the dough into the basket
don't use a lever here 'cause you'll pinch the tube ->
Lower the dough in, pop the lid on and bake it. -> lower in the dough; pop on the lid; bake it
turn the water back on and check for leaks -> turn the water back on; check for leaks
Roll the old one off and put the new one in. ->
stick the patch on there -> stick on the patch
pull the straps tight -> pull the straps tight
break the lug nuts loose before you lift the car -> break the lug nuts loose
use a stick to poke it down -> poke it down
Turn the nut. Now the stem comes out, so pull it up. -> turn the nut; pull it up
dab the cream on and seal it all in with a lotion -> dab on the cream; seal it in with a lotion
put a tiny bit of air in the tube -> put air in the tube
attach the handles, just two screws each -> attach the handles
lower the car and torque it -> lower the car
grab a makeup wipe and clean that up -> grab a makeup wipe; clean it up
Give that a good whisk. It should be thick. Press the button, it opens. -> whisk it; press the button
and i'm going to put my roti over and wait -> put the roti over
and just dip the pork inside -> dip the pork inside
then i'm going to add a drop or two of vanilla -> add a drop of vanilla
always toast the bun or the last moment -> toast the bun
we add around one tablespoon of cumin seeds -> add one tablespoon of cumin seeds
you don't want to add too much dressing so add too much water ->
now boil the table ->
and let it cook another minute to a minute and a half -> let it cook
take the avocado all the way to the ends -> take the avocado
wind what yarn you have around the needle ->
and we put some sprinkle on the chicken ->
then divide the dough into two half in the bowl ->
now spoon the last the potato into the bowl ->
we're going to cook this meat in this guy ->
add baking powder and mix -> add baking powder; mix
now i'm going to go ahead and fold the puff pastry over the cheese -> fold the puff pastry over the cheese
brush the top with butter -> brush the top with butter
and then what i like to do is i brush the top with some melted butter -> brush the top with melted butter
you want to make sure that you whisk the eggs really well -> whisk the eggs
so the first thing you're gonna do is crack two eggs into a bowl -> crack two eggs into a bowl
go ahead and preheat your oven to 350 degrees -> preheat the oven to 350 degrees
i'm just gonna pour in a little bit of olive oil -> pour in olive oil
next we're going to be adding our garlic -> add the garlic
let's chop up these onions -> chop up the onions
so now let's go ahead and slice the tomatoes thinly -> slice the tomatoes
don't forget to add a pinch of salt -> add a pinch of salt
you'll need to unscrew the four bolts on the back -> unscrew the four bolts on the back
once the butter is hot add the flour -> add the flour
give it a good stir -> stir it
take the lid off the pot -> take the lid off the pot
then i take my rolling pin and roll out the dough -> take the rolling pin; roll out the dough
what you're going to want to do is loosen the lug nuts -> loosen the lug nuts
i went ahead and cut the apples into small cubes -> cut the apples into small cubes
we have to drain the oil before we remove the filter -> drain the oil
the chicken gets coated in flour -> coat the chicken in flour
the onions are added to the pan -> add the onions to the pan
after that you can start mixing in the chocolate chips -> mix in the chocolate chips
make sure you rinse the rice under cold water -> rinse the rice under cold water
try to fold the paper in half -> fold the paper in half
sprinkle some of that lovely parmesan cheese over the top -> sprinkle parmesan cheese over the top
so i'm gonna take this piece of wood and sand it down -> take the piece of wood; sand down the piece of wood
turn off the heat -> turn off the heat
we're going to let the dough rise for one hour -> let the dough rise for one hour
let it cool -> let it cool
put the cake in the oven for thirty minutes -> put the cake in the oven
so basically you just wanna squeeze out all of the excess water -> squeeze out the excess water
i usually like to season mine with salt and pepper ->
at this point you should tighten the screws with a screwdriver -> tighten the screws with a screwdriver
i think i will add two tablespoons of freshly grated parmesan cheese to the bowl ->
    add freshly grated parmesan cheese to the bowl
place the jack underneath the frame of the car -> place jack underneath the frame of the car
spread the peanut butter on one slice of bread -> spread peanut butter on one slice of bread
now we are ready to attach the handle to the door -> attach the handle to the door
the next step is to sew the button onto the shirt -> sew the button onto the shirt
just keep stirring the sauce -> stir the sauce
continue to knead the dough -> knead the dough
start by removing the battery cover -> remove the battery cover
i have already peeled the potatoes ->
we'll be dipping each strawberry in chocolate -> dip each strawberry in chocolate
using a sharp knife cut the bread into slices -> cut the bread into slices
with the spatula flip the pancake -> flip the pancake
carefully lift the tire onto the hub -> lift the tire onto the hub
gently fold in the egg whites -> fold in the egg whites
wrap it tightly in plastic wrap -> wrap it in plastic wrap
so yeah i'm gonna go ahead and um throw in the mushrooms -> throw in the mushrooms
i am now going to be showing you how to tie a tie ->
make a small cut in the fabric -> make a small cut in the fabric
grab your scissors and trim the edges -> grab the scissors; trim the edges
we need to plug the cable into the port -> plug the cable into the port
click on the settings icon -> click on the settings icon
you're gonna wanna put a little bit of glue on the edge -> put glue on the edge
leave your door open -> leave the door open
now add the salt, the pepper and the cumin -> add the salt, pepper and cumin
add the onions and the garlic to the pot and cook it for five minutes ->
    add the onions and garlic to the pot; cook it for five minutes
mix your flour and your baking powder -> mix the flour and baking powder
i used to fry the fish but now i bake the fish in the oven -> bake the fish in the oven
we used a knife to cut the bread -> cut the bread
bake for thirty minutes -> bake for thirty minutes
wipe the toner over your face i could take a bath in this -> wipe the toner over the face
i'm going to put salt -> add salt
put the pan ->
add in a blender i'm going to add the cumin seeds -> add the cumin seeds
bring all the ingredients ->
mix the yeast and sugar with a tablespoon of warm water -> mix the yeast and sugar with warm water
mix a cup of flour and half a teaspoon of cumin into the bowl -> mix flour and cumin into the bowl
bring a pot of water to a nice rolling boil -> bring a pot of water to a boil
add a couple of tablespoon of oil and cook it for like few minutes ->
    add a couple of tablespoons of oil; cook it for few minutes
soak it for two hours before grinding it -> soak it for two hours
you can always add more dressing ->
line an 8 by 8 pan with paper ->
today we're making fish tacos tonight we're frying cod ->
i have made the soup before so let's jump right into it ->
serve it right away with some parsley -> serve it with parsley
watch out for wires ->
place these tomatoes on an i have a video of it -> place the tomatoes
add the calamari in calamari -> add the calamari
hey guys welcome back to my channel ->
if you like this video hit the like button ->
i love this recipe so much ->
don't forget to subscribe to my channel ->
my grandmother taught me this recipe ->
it's really important to have a sharp knife ->
do not overmix the batter ->
and i'm just throwing the carrots -> add the carrots
mix the paste with three tablespoons of our sunny garlic dressing and the rest -> mix the paste
let my lentils simmer for about fifteen to twenty minutes -> let the lentils simmer
squeeze just a squeeze of lime over the top -> squeeze lime over the top
cook the walnuts and now we are ready to serve -> cook the walnuts; serve
grab that whisk an beat the cream -> grab the whisk; beat the cream
and then you chop the leek very fresh a bit of butter -> chop the leek
grate the next topping is the onions ->
sour cream some salt and pepper ->
and then cut him into thin strips -> cut them into thin strips
now coat the chick in with flour -> coat the chicken with flour
then you put in the oven for an hour -> put it in the oven
serving dish and pour the gravy into the jug -> pour the gravy into the jug
use the spoon for the rice ->
heat up at oil ->
put the peppers out of the oven ->
you put the steak down at steak ->
and then blend this for about two or so minutes -> blend it
Pull tight and knot the thread. -> knot the thread
Fold it in half and press it flat. -> fold it in half; press it flat
Now the butter goes in. -> add the butter
Scrape everything into the jar. -> scrape everything into the jar
Once it's melted, pour the butter over the oats. -> pour the butter over the oats
add the carrots which i peeled earlier -> add the carrots
First thing, unplug the lamp. -> unplug the lamp
Pat the skin dry. -> pat the skin dry
don't press on the glass you'll crack the screen ->
stir in one and a half sticks of cold butter with a big wooden spoon -> stir in cold butter
take a plum and a peeler the plum -> take a plum
i cook the dumplings one of my favorite dishes -> cook the dumplings
thank you so much for watching ->
see you in the next video ->
i hope you enjoyed this tutorial ->
that's what it should look like ->
check out the link in the description ->
this is going to taste amazing ->
leave me a comment down below ->
"""

# captions without marks: one imperative behind the other
RUN_ON = """
add some tomato paste sprinkle in salt -> add tomato paste; sprinkle in salt
melt butter in a pan add onions fry until golden add the chicken ->
    melt butter in a pan; add onions; fry; add the chicken
cut the apples into small pieces add sugar cinnamon and lemon juice mix well ->
    cut the apples into small pieces; add sugar cinnamon and lemon juice; mix
preheat the oven to 350 degrees grease a baking pan pour in the batter bake for thirty minutes ->
    preheat the oven to 350 degrees; grease a baking pan; pour in the batter; bake for thirty minutes
chop the onion add garlic add the spices cook for two minutes ->
    chop the onion; add garlic; add the spices; cook for two minutes
fold the pastry over the filling brush with egg wash bake until golden brown ->
    fold the pastry over the filling; brush with egg wash; bake
unscrew the cap drain the oil replace the filter tighten the bolt ->
    unscrew the cap; drain the oil; replace the filter; tighten the bolt
take your potatoes peel them cut them into cubes boil them in salted water ->
    take the potatoes; peel the potatoes; cut the potatoes into cubes; boil the potatoes in salted water
put the lid on let it simmer for ten minutes turn off the heat ->
    put on the lid; let it simmer for ten minutes; turn off the heat
roll out the dough spread tomato sauce sprinkle cheese slide it into the oven ->
    roll out the dough; spread tomato sauce; sprinkle cheese; slide it into the oven
spread the butter place the cheese on top season with salt and pepper ->
    spread the butter; place the cheese; season the cheese with salt and pepper
add the onions to the pan and let them cook for a few minutes ->
    add the onions to the pan; let them cook for a few minutes
while the onions cook in the butter peel the garlic -> peel the garlic
"""


def cases(table: str) -> list[tuple[str, list[str]]]:
    rows = [line.split("->") for line in table.strip().replace("\n    ", " ").splitlines()]
    return [(said.strip(), [name.strip() for name in names.split(";") if name.strip()]) for said, names in rows]


def forms_of(said: str) -> list[str]:
    phrases = extract_phrases([Cue(0.0, 0.4 * len(said.split()), said)])
    return [name for forms in name_forms(phrases) for name in forms]


ROWS = cases(SAID) + cases(RUN_ON)


@pytest.mark.parametrize(("said", "names"), [row for row in ROWS if row[1]])
def test_what_is_said_has_the_right_name_among_its_forms(parser, said: str, names: list[str]) -> None:
    forms = forms_of(said)
    assert set(names) <= set(forms)
    assert all(len(form.split()) <= MOST_WORDS for form in forms)


def test_the_classifier_takes_the_right_form_and_nothing_where_nothing_is_done(parser) -> None:
    """Alone, without a word around them, many of the sentences above give their names, and little is made of talk."""
    if weights.find("minilm") is None:
        pytest.skip("weights are not here: stepformer models pull minilm")
    wanted = found = right = made = 0
    for said, names in ROWS:
        cues = [Cue(0.0, 0.4 * len(said.split()), said)]
        kept = candidates(extract_phrases(cues), cues, default_name_classifier())
        shown = [] if kept is None else [n for n, c in zip(kept.names, kept.scores, strict=True) if c >= SHOWN_SAID]
        wanted, found = wanted + len(names), found + len(set(names) & set(shown))
        right, made = right + sum(name in names for name in shown), made + len(shown)
    assert found / wanted > WANTED_FOUND and right / made > MADE_RIGHT, (found / wanted, right / made)


def test_a_pronoun_has_a_form_with_what_it_stands_for_and_one_without(parser) -> None:
    forms = forms_of("crack the eggs into a bowl and then whisk them with a fork")
    assert {"whisk them with a fork", "whisk the eggs with a fork", "whisk them", "whisk the eggs"} <= set(forms)


def test_what_must_not_be_done_and_talk_have_no_forms(parser) -> None:
    assert forms_of("do not overmix the batter") == []
    assert forms_of("hey guys i think you will love this") == []
    assert name_forms([Phrase("subscribe now", 0.0, 1.0, chatter=True, verb="subscribe")]) == [()]


def test_what_is_done_to_several_things_is_one_name(parser) -> None:
    phrases = extract_phrases([Cue(0.0, 4.0, "now add the salt, the pepper and the cumin")])
    first, *others = name_forms(phrases)
    assert first[0] == "add the salt, pepper and cumin" and others and not any(others)


def test_no_name_is_longer_than_eight_words() -> None:
    long = Phrase(
        "x", 0.0, 1.0, groundability=1.0, verb="pour",
        object="two large cups of very cold filtered clean drinking water",
        preposition="into the big blue bowl on the left side of the table",
    )  # fmt: skip
    (forms,) = name_forms([long])
    assert forms and all(len(name.split()) <= MOST_WORDS and name.startswith("pour ") for name in forms)
