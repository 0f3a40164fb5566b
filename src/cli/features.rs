//! Feature lists: takes the words of `--features` / `--btf_features` and the older switches in the
//! order they were typed, gives the set of features (spec/encoding 7.1).

use crate::options::{Feature, Features};

/// What `all` stands for, as in pahole 1.32. `layout` is not in it: the header it makes is refused
/// by every kernel that does not know it, so it is used only where it is named.
const ALL: Features = Features::DEFAULT.union(Features::of(&[
    Feature::GlobalVar,
    Feature::Attributes,
    Feature::TrueSignature,
]));

/// What pahole encodes when no list is given at all (spec/encoding 7.1.1).
pub const HISTORIC: Features =
    Features::of(&[Feature::Var, Feature::DeclTag, Feature::TypeTag, Feature::Enum64]);

/// The set of features while the command line is read from left to right.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    features: Features,
    has_list: bool,
}

impl Selection {
    /// Starts with what holds when the command line says nothing.
    #[must_use]
    pub const fn new(unless_named: Features) -> Self {
        Self { features: unless_named, has_list: false }
    }

    /// Adds the features of a list and returns the words that name none.
    ///
    /// The first list switches everything off before it counts, older switches included; later
    /// lists add to it.
    #[must_use = "unknown words are to be reported"]
    pub fn add_list(&mut self, list: &str) -> Vec<String> {
        if !self.has_list {
            self.features = Features::NONE;
            self.has_list = true;
        }
        let words = match list.strip_prefix('+') {
            Some(rest) => {
                self.features = self.features.union(Features::DEFAULT);
                rest
            }
            None => list,
        };
        let words = words.split(',').filter(|word| !word.is_empty());
        words.filter(|word| !self.add_word(word)).map(str::to_owned).collect()
    }

    /// Adds what one word stands for; false if it stands for nothing.
    fn add_word(&mut self, word: &str) -> bool {
        let named = match word {
            "default" => Features::DEFAULT,
            "all" => ALL,
            _ => match Feature::ALL.into_iter().find(|feature| feature.name() == word) {
                Some(feature) => Features::of(&[feature]),
                None => return false,
            },
        };
        self.features = self.features.union(named);
        true
    }

    /// Switches one feature, as the older options do.
    pub const fn switch(&mut self, feature: Feature, on: bool) {
        self.features = self.features.with(feature, on);
    }

    /// The features as they stand.
    #[must_use]
    pub const fn features(self) -> Features {
        self.features
    }
}

/// The names of all features, in pahole's order, with commas between.
#[must_use]
pub fn supported() -> String {
    Feature::ALL.map(Feature::name).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the features of a set.
    fn names(features: Features) -> String {
        let on = Feature::ALL.into_iter().filter(|&feature| features.has(feature));
        on.map(Feature::name).collect::<Vec<_>>().join(",")
    }

    fn select(lists: &[&str]) -> (Features, Vec<String>) {
        let mut selection = Selection::new(HISTORIC);
        let unknown = lists.iter().flat_map(|list| selection.add_list(list)).collect();
        (selection.features(), unknown)
    }

    #[test]
    fn lists() {
        let default = names(Features::DEFAULT);
        let all = format!("{default},global_var,attributes,true_signature");
        let cases: &[(&[&str], &str)] = &[
            (&[], "var,decl_tag,type_tag,enum64"),
            (&[""], ""),
            (&[",,"], ""),
            (&["default"], &default),
            (&["default,default"], &default),
            (&["+"], &default),
            (&["var"], "var"),
            (&["float,,var,"], "var,float"),
            (&["var", "float"], "var,float"),
            (&["", "float"], "float"),
            (&["default", "layout"], &format!("{default},layout")),
            (&["+layout"], &format!("{default},layout")),
            (&["layout", "+reproducible_build"], &format!("{default},reproducible_build,layout")),
            (&["all"], &all),
            (&["+all"], &all),
            (&["var,all"], &all),
            (&["all,distilled_base"], &all.replace("kfuncs,", "kfuncs,distilled_base,")),
            (&["force_cu_merging"], "force_cu_merging"),
        ];
        for (lists, expected) in cases {
            let (features, unknown) = select(lists);
            assert_eq!(names(features), *expected, "{lists:?}");
            assert_eq!(unknown, [""; 0], "{lists:?}");
        }
    }

    #[test]
    fn unknown_words_are_returned_and_change_nothing() {
        let (features, unknown) = select(&["var,Var,+float", "vars, var"]);
        assert_eq!(names(features), "var");
        assert_eq!(unknown, ["Var", "+float", "vars", " var"]);
    }

    #[test]
    fn switches_before_the_first_list_are_undone_and_after_it_count() {
        let mut selection = Selection::new(HISTORIC);
        selection.switch(Feature::Float, true);
        assert_eq!(names(selection.features()), "var,float,decl_tag,type_tag,enum64");
        assert!(selection.add_list("var").is_empty());
        assert_eq!(names(selection.features()), "var");
        selection.switch(Feature::Float, true);
        selection.switch(Feature::Var, false);
        assert!(selection.add_list("enum64").is_empty());
        assert_eq!(names(selection.features()), "float,enum64");
    }
}
