import type { Command } from "commander";
import { CliError } from "./cli-error.ts";
import { contextOf, subcommand, type Wiring } from "./subcommand.ts";
import { pair } from "./units.ts";

/** The commands about environment parts. */
export function addImageCommands(program: Command, wiring: Wiring): void {
  const { finish } = wiring;
  const image = program.command("image").description("environment parts: bases, workspaces, toolkits");
  addBuild(image, wiring);
  addImport(image, wiring);
  addExport(image, wiring);
  addList(image, wiring);
  subcommand(image, "info", "show an artifact")
    .argument("<name>", "name[:tag]")
    .action(async (name: string, _options, command: Command) => {
      const { info } = await import("./commands/image.ts");
      finish(await info(contextOf(wiring, command), name));
    });
  subcommand(image, "layers", "show where the data of an artifact's layers is")
    .argument("<name>", "name[:tag]")
    .action(async (name: string, _options, command: Command) => {
      const { layers } = await import("./commands/image-layers.ts");
      finish(await layers(contextOf(wiring, command), name));
    });
  subcommand(image, "gc", "remove what nothing needs from the node")
    .option("--store", "from the store that nodes share, instead")
    .option("--dry-run", "only tell what would go")
    .action(async ({ store, ...options }, command: Command) => {
      const { gc, gcStore } = await import("./commands/image.ts");
      finish(await (store === true ? gcStore : gc)(contextOf(wiring, command), options));
    });
  addNaming(image, wiring);
  for (const direction of ["push", "pull"] as const) {
    const what = direction === "push" ? "put an artifact into the store" : "take over what a name means in the store";
    subcommand(image, direction, what)
      .argument("<name>", "name[:tag]")
      .action(async (name: string, _options, command: Command) => {
        const { transfer } = await import("./commands/image.ts");
        finish(await transfer(contextOf(wiring, command), direction, name));
      });
  }
  subcommand(image, "rm", "take artifacts out of the catalogue")
    .argument("<name...>", "name[:tag]")
    .action(async (names: string[], _options, command: Command) => {
      const { rm } = await import("./commands/image.ts");
      finish(await rm(contextOf(wiring, command), names));
    });
}

function addNaming(image: Command, wiring: Wiring): void {
  subcommand(image, "tag", "make another tag mean an artifact")
    .argument("<source>", "name[:tag] or name@sha256:…")
    .argument("<target>", "name[:tag]")
    .option("--shared", "a tag that every project sees")
    .action(async (source: string, target: string, options, command: Command) => {
      const { tag } = await import("./commands/image.ts");
      wiring.finish(await tag(contextOf(wiring, command), source, target, options));
    });
  subcommand(image, "derive", "make an artifact of another kind of an artifact's layers")
    .argument("<source>", "name[:tag] or name@sha256:…")
    .argument("<target>", "name[:tag]")
    .requiredOption("--kind <kind>", "base, workspace, toolkit or snapshot")
    .option("--over <name>", "the artifact that it was made on, whose layers are left out")
    .action(async (source: string, target: string, options, command: Command) => {
      const { derive } = await import("./commands/image.ts");
      wiring.finish(await derive(contextOf(wiring, command), source, target, options));
    });
}

function addExport(image: Command, wiring: Wiring): void {
  subcommand(image, "export", "write an artifact as an OCI image, to a file or into a registry")
    .argument("<name>", "name[:tag]")
    .option("-o, --output <file>", "an OCI archive; - is stdout")
    .option("--to <docker://image>", "a registry and the image's name there")
    .option("--compression <kind>", "of layers: gzip, zstd or none; gzip unless given")
    .option("--auth-file <file>", "credentials for registries, as podman login writes them")
    .option("--insecure", "the registry may speak plain HTTP or have a certificate that nobody vouches for")
    .action(async (name: string, options, command: Command) => {
      const { exportArtifact } = await import("./commands/image-export.ts");
      wiring.finish(await exportArtifact(contextOf(wiring, command), name, options));
    });
}

function addList(image: Command, wiring: Wiring): void {
  subcommand(image, "ls", "list artifacts")
    .option("--label <name=value>", "only those with the label (may be given again)", pair("--label"))
    .action(async (options, command: Command) => {
      const { list } = await import("./commands/image.ts");
      wiring.finish(await list(contextOf(wiring, command), options));
    });
}

function addBuild(image: Command, wiring: Wiring): void {
  subcommand(image, "build", "build a Debian base, or with --tag an image from a Dockerfile")
    .argument("<what>", "name[:tag] of the Debian base; with --tag, the directory to copy from")
    .option("--debian <suite>", "Debian suite, such as bookworm")
    .option("--vm", "build a whole system with the agent, for full VMs, instead of a base")
    .option("--desktop", "with --vm: its screen is a desktop, with a terminal and a browser")
    .option("--include <packages>", "more packages, separated by commas")
    .option("-t, --tag <name>", "name[:tag] of what the Dockerfile makes")
    .option("-f, --file <file>", "the Dockerfile; the directory's own unless given")
    .option("--build-arg <name=value>", "value of an ARG (may be given again)", pair("--build-arg"))
    .option("--label <name=value>", "label of the Debian base (may be given again)", pair("--label"))
    .option("--kind <kind>", "of what the Dockerfile makes: snapshot unless given, base, workspace or toolkit")
    .option("--no-cache", "take no step from an earlier build")
    .action(async (what: string, options, command: Command) => {
      const { tag, file, buildArg, kind, cache, ...debian } = options;
      if (tag !== undefined) {
        if (Object.keys(debian).some((name) => name !== "json"))
          throw oneBuild("--debian, --include and --label", "without --tag");
        const { buildFile } = await import("./commands/image-build.ts");
        wiring.finish(await buildFile(contextOf(wiring, command), what, { tag, file, buildArg, kind, cache }));
        return;
      }
      if (file !== undefined || buildArg !== undefined || kind !== undefined || cache === false) {
        throw oneBuild("--file, --build-arg, --kind and --no-cache", "with --tag NAME");
      }
      const { build } = await import("./commands/image.ts");
      wiring.finish(await build(contextOf(wiring, command), what, debian));
    });
}

function oneBuild(names: string, when: string): CliError {
  return new CliError("InvalidArgument", `${names} go only ${when}`, { hint: "dsec image build --help" });
}

function addImport(image: Command, wiring: Wiring): void {
  subcommand(image, "import", "import an image, an archive, a directory, a git revision or Debian packages")
    .argument(
      "<source>",
      "directory or file, docker://IMAGE, git+https://HOST/PATH[#REVISION], git:DIRECTORY[#REVISION] or apt:PACKAGE,…[#SUITE]",
    )
    .argument("<name>", "name[:tag]")
    .option(
      "--kind <kind>",
      "base, workspace or toolkit; workspace for git, toolkit for packages and base for all else unless given",
    )
    .option("--label <name=value>", "label (may be given again)", pair("--label"))
    .option("--format <format>", "tar, oci or deb; recognised unless given")
    .option("--vm", "the file is a disk or CD of a full virtual machine: qcow2, VMDK, ISO or plain bytes")
    .option("--firmware <name>", "with --vm: what starts it, bios or uefi; bios unless given")
    .option("--devices <name>", "with --vm: what its system knows, virtio or emulated; virtio unless given")
    .option("--agent", "with --vm: its system runs the agent as a service")
    .option("--at <path>", "directory of the sandbox at which a workspace or toolkit begins; / unless given")
    .option("--auth-file <file>", "credentials for registries and repositories, as podman login writes them")
    .option("--insecure", "a registry may speak plain HTTP or have a certificate that nobody vouches for")
    .action(async (source: string, name: string, options, command: Command) => {
      const { importArtifact } = await import("./commands/image-import.ts");
      wiring.finish(await importArtifact(contextOf(wiring, command), source, name, options));
    });
}
