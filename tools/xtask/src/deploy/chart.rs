//! The Helm chart, by its cases: values and what is rendered of them, and values that are refused.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupts;
use crate::program::Programs;
use crate::say::say;
use crate::tree::root;

use super::tools::{Tools, location};

const CHART: &str = "deploy/helm/handfast";
const CASES: &str = "deploy/helm/cases";
const REFUSED: &str = "deploy/helm/refused";
/// The first line of values that are refused says what the refusal names.
const REFUSAL: &str = "# refused: ";
/// The versions of Kubernetes that the objects are valid in: the chart's oldest, and later ones.
const VERSIONS: [&str; 3] = ["1.25.0", "1.31.0", "1.37.0"];
/// Where pods find their secrets.
const MOUNTS: &str = "/etc/handfast";
/// How long one call of helm may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Checks the chart.
pub(super) fn check(interrupts: &Interrupts, tools: &Tools) -> Result<()> {
    let mut rendered = Vec::new();
    for values in yaml_files(CASES, ".values.yaml")? {
        let mut lint = tools.go("helm");
        lint.args(["lint", "--strict", "--quiet", CHART, "--values"]).arg(&values);
        interrupts.run(lint.current_dir(root()))?;
        rendered.push(compare(interrupts, tools, &values)?);
    }
    for values in yaml_files(REFUSED, ".yaml")? {
        check_refusal(interrupts, tools, &values)?;
    }
    for version in VERSIONS {
        let mut kubeconform = tools.go("kubeconform");
        // Kubernetes itself has no schema of the operator's kinds.
        kubeconform.args(["-strict", "-summary", "-skip", "ServiceMonitor,PrometheusRule"]);
        kubeconform.args(["-schema-location", &location(&tools.schemas(version)?)]);
        interrupts.run(kubeconform.args(&rendered))?;
    }
    let handfast = Programs::build_one(interrupts, "handfast")?;
    rendered.iter().try_for_each(|file| check_configuration(interrupts, &handfast, file))
}

/// Writes what is rendered of each case.
pub(super) fn render(interrupts: &Interrupts, tools: &Tools) -> Result<()> {
    for values in yaml_files(CASES, ".values.yaml")? {
        let text = interrupts.output(&mut template(tools, &values))?;
        fs::write(expected(&values), text)?;
    }
    Ok(())
}

fn expected(values: &Path) -> PathBuf {
    PathBuf::from(values.display().to_string().replace(".values.", ".expected."))
}

fn template(tools: &Tools, values: &Path) -> Command {
    let mut helm = tools.go("helm");
    helm.args(["template", "handfast", CHART, "--namespace", "shop"]);
    helm.args(["--kube-version", VERSIONS[0], "--values"]).arg(values).current_dir(root());
    helm
}

/// Compares what is rendered with the file beside the values, or writes that, and returns its path.
fn compare(interrupts: &Interrupts, tools: &Tools, values: &Path) -> Result<PathBuf> {
    let text = interrupts.output(&mut template(tools, values))?;
    let path = expected(values);
    if env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&path, text)?;
        return Ok(path);
    }
    let expected = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let differs = text.lines().zip(expected.lines()).position(|(a, b)| a != b);
    if let Some(at) = differs.or_else(|| (text != expected).then_some(text.lines().count())) {
        bail!(
            "{} line {}: rendered otherwise; UPDATE_GOLDENFILES=1 writes it again",
            path.display(),
            at + 1
        );
    }
    Ok(path)
}

fn check_refusal(interrupts: &Interrupts, tools: &Tools, values: &Path) -> Result<()> {
    let name = values.display();
    let text = fs::read_to_string(values)?;
    let words = text.lines().next().and_then(|line| line.strip_prefix(REFUSAL));
    let words = words.with_context(|| format!("{name} does not begin with `{REFUSAL}`"))?;
    let output = interrupts.output_within(&mut template(tools, values), LIMIT)?;
    let output = output.with_context(|| format!("{name}: helm does not end"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || !errors.contains(words) {
        bail!("{name}: not refused with `{words}`, but {}: {errors}", output.status);
    }
    say(format_args!("{name}: refused"));
    Ok(())
}

/// Has the program read the configuration that the chart makes, with the arguments that it gives.
fn check_configuration(interrupts: &Interrupts, handfast: &Path, rendered: &Path) -> Result<()> {
    let text = fs::read_to_string(rendered)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("handfast.toml");
    // The files of secrets must be there; their content is not read.
    let secrets = folder.path().join("secrets").display().to_string();
    let configuration = configuration(&text).replace(MOUNTS, &secrets);
    for path in configuration.split('"').filter(|word| word.starts_with(&secrets)) {
        let path = Path::new(path);
        fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
        fs::write(path, "")?;
    }
    fs::write(&file, configuration)?;
    let mut command = Command::new(handfast);
    command.args(["config", "--config"]).arg(file).args(settings(&text));
    let printed = interrupts.output(&mut command);
    printed.map(drop).with_context(|| format!("the configuration in {}", rendered.display()))
}

/// Returns the file that stands under `handfast.toml: |`, without its indentation.
fn configuration(rendered: &str) -> String {
    let lines = rendered.lines().skip_while(|line| line.trim() != "handfast.toml: |").skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim_start())).collect()
}

/// Returns the arguments that set keys, with the name of a pod for its placeholder.
fn settings(rendered: &str) -> Vec<String> {
    let arguments = rendered.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let arguments = arguments.map(|word| word.trim_matches('"'));
    let settings = arguments.filter(|word| word.starts_with("--set="));
    settings.map(|word| word.replace("$(POD_NAME)", "handfast-0")).collect()
}

/// Returns the files of a folder with this ending, in order.
fn yaml_files(folder: &str, ending: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(root().join(folder)).context(folder.to_owned())? {
        let path = entry?.path();
        if path.display().to_string().ends_with(ending) {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        bail!("{folder} has no *{ending}");
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENDERED: &str = "data:\n  handfast.toml: |\n    store = \"sql\"\n\n    [sql]\n    \
        url = \"x\"\n---\nargs:\n  - serve\n  - --set=cluster.host=$(POD_NAME).h\n  \
        - \"--set=a.b=1\"\n";

    #[test]
    fn the_configuration_is_found() {
        assert_eq!(configuration(RENDERED), "store = \"sql\"\n\n[sql]\nurl = \"x\"\n");
    }

    #[test]
    fn the_settings_are_found() {
        assert_eq!(settings(RENDERED), ["--set=cluster.host=handfast-0.h", "--set=a.b=1"]);
    }
}
