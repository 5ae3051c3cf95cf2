//! How types of wire are carried from one process to another: they know no serde.

/// Size classes as words, with the counters of threads as the bytes of their record.
pub(crate) mod classes {
    use poolscope_wire::{ClassCounters, ClassStats};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Words = ([u64; 3], Vec<u8>, Vec<u64>);

    pub(crate) fn serialize<S: Serializer>(classes: &[ClassStats], to: S) -> Result<S::Ok, S::Error> {
        let words = |class: &ClassStats| -> Words {
            let sizes = [class.block_bytes, class.slab_bytes, class.slab_blocks];
            (sizes, class.threads.to_bytes().to_vec(), class.shared.to_vec())
        };
        classes.iter().map(words).collect::<Vec<Words>>().serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<ClassStats>, D::Error> {
        let class = |([block_bytes, slab_bytes, slab_blocks], threads, shared): Words| {
            let threads = ClassCounters::from_bytes(&threads)?;
            Some(ClassStats { block_bytes, slab_bytes, slab_blocks, threads, shared: shared.try_into().ok()? })
        };
        let classes: Option<Vec<ClassStats>> = Vec::<Words>::deserialize(from)?.into_iter().map(class).collect();
        classes.ok_or_else(|| D::Error::custom("a size class has too few counters"))
    }
}

/// Totals as the bytes of their records.
pub(crate) mod totals {
    use poolscope_wire::Total;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(totals: &[Total], to: S) -> Result<S::Ok, S::Error> {
        totals.iter().map(|total| total.to_bytes().to_vec()).collect::<Vec<Vec<u8>>>().serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Total>, D::Error> {
        let totals = Vec::<Vec<u8>>::deserialize(from)?;
        let totals: Option<Vec<Total>> = totals.iter().map(|bytes| Total::from_bytes(bytes)).collect();
        totals.ok_or_else(|| D::Error::custom("a total is too short"))
    }
}

/// Why a search failed: one of the sentences that there are.
pub(crate) mod reason {
    use poolscope_wire::reach::outcome;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Numbers of reasons that are looked through.
    const NUMBERS: u32 = 64;

    pub(crate) fn serialize<S: Serializer>(why: &Option<&'static str>, to: S) -> Result<S::Ok, S::Error> {
        let number = why.map(|why| (0..NUMBERS).find(|&number| outcome::reason(number) == Some(why)));
        number.map(|number| number.unwrap_or(u32::MAX)).serialize(to)
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<&'static str>, D::Error> {
        Ok(Option::<u32>::deserialize(from)?.and_then(outcome::reason))
    }
}
