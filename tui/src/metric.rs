//! The figures of a call site by the names that pprof has for them.

use clap::ValueEnum;
use poolscope_profiler::Metric;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum MetricName {
    #[default]
    InuseSpace,
    InuseObjects,
    AllocSpace,
    AllocObjects,
}

impl MetricName {
    pub(crate) fn metric(self) -> Metric {
        match self {
            MetricName::InuseSpace => Metric::InUseBytes,
            MetricName::InuseObjects => Metric::InUseObjects,
            MetricName::AllocSpace => Metric::AllocatedBytes,
            MetricName::AllocObjects => Metric::AllocatedObjects,
        }
    }
}
