// What plugin.yaml says of the plugin, for the table and the ELF note; and how the library is linked.
use std::collections::HashMap;

fn main() {
    println!("cargo:rerun-if-changed=plugin.yaml");
    let text = std::fs::read_to_string("plugin.yaml").expect("plugin.yaml is beside Cargo.toml");
    let values: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(key, value)| (key, value.split(" #").next().unwrap_or(value).trim().trim_matches('"')))
        .collect();
    for key in ["name", "version", "summary"] {
        println!("cargo:rustc-env=GRAFT_PLUGIN_{}={}", key.to_uppercase(), values[key]);
    }
    let (arch, isa) = match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => ("arm64", "armv8-a"),
        _ => ("amd64", "x86-64"),
    };
    println!(
        "cargo:rustc-env=GRAFT_PLUGIN_NOTE=abi={}\\nname={}\\nversion={}\\ndevice=cpu\\nos=linux\\narch={arch}\\nisa={isa}\\n",
        values["abi"], values["name"], values["version"]
    );
    // Sessions hold pointers into the library: it stays. Relocations are done before any code runs.
    for flag in ["nodelete", "now", "relro", "noexecstack", "separate-code", "text"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,{flag}");
    }
}
