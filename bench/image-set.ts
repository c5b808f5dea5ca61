import { execFile } from "node:child_process";
import { createReadStream, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Client } from "#sdk";
import { bootstrap } from "#tests/support/debian.ts";
import { startNode } from "#tests/support/node.ts";
import { IMAGES, type ImageRecipe } from "./image-recipes.ts";
import { inParallel } from "./stats.ts";

const exec = promisify(execFile);

/** Names of the common base. */
export const IMAGE_BASE = "debian";
/** What programs of all kinds need, and what makes the base as large as bases of real work are. */
const BASE_PACKAGES = ["build-essential", "python3", "git", "nodejs", "perl", "curl", "libicu-dev", "libssl-dev"];
/** Packages are unpacked by one processor and fetched over the network meanwhile. */
const WIDTH = 2;
const HOUR_MS = 3_600_000;
const OUTPUT_BYTES = 2 ** 26;

/**
 * Sees that `<dir>/store` has the images, as a node publishes them: artifact `debian` and a workspace for each recipe. Made once, from
 * Debian's packages, which takes minutes and 10 GB; the store that stays has 5 GB. Resolves with the directory of the store.
 */
export async function provideImages(dir: string, note: (line: string) => void): Promise<string> {
  const store = join(dir, "store");
  if (existsSync(store)) return store;
  const base = join(dir, "base.tar");
  const tree = join(dir, "base");
  mkdirSync(dir, { recursive: true });
  if (!existsSync(tree)) {
    note(`making a base of ${BASE_PACKAGES.join(", ")}`);
    await bootstrap(BASE_PACKAGES, base);
    mkdirSync(`${tree}.new`);
    await exec("tar", ["-C", `${tree}.new`, "-xf", base]);
    renameSync(`${tree}.new`, tree);
  }
  // The host's own lists may be older than what the base has got.
  mkdirSync(join(dir, "lists/partial"), { recursive: true });
  await exec("apt-get", ["-q", ...aptOptions(dir), "update"]);
  await inParallel(IMAGES.length, WIDTH, async (index) => {
    const recipe = IMAGES[index];
    if (recipe === undefined || existsSync(tarOf(dir, recipe))) return;
    note(`installing ${recipe.packages.join(", ")}`);
    await install(dir, tree, recipe);
  });
  note("publishing the images");
  await publish(dir, base);
  const lists = join(dir, "lists");
  for (const path of [base, tree, lists, ...IMAGES.map((recipe) => tarOf(dir, recipe))])
    rmSync(path, { recursive: true });
  return store;
}

/** Packages over the base as a tar file: what an overlay has of them when they are installed in it. */
async function install(dir: string, tree: string, recipe: ImageRecipe): Promise<void> {
  const work = join(dir, `${recipe.name}.work`);
  rmSync(work, { recursive: true, force: true });
  for (const folder of ["upper/project", "work", "merged", "packages/partial"]) {
    mkdirSync(join(work, folder), { recursive: true });
  }
  const target = [
    "-o",
    `Dir::State::status=${tree}/var/lib/dpkg/status`,
    "-o",
    `Dir::Cache::archives=${work}/packages`,
  ];
  // Several at once, and none changes that status.
  const words = [...aptOptions(dir), ...target, "-o", "Debug::NoLocking=true", "--download-only"];
  await exec("apt-get", ["-q", "-y", ...words, "install", ...recipe.packages]);
  for (const [name, text] of Object.entries(recipe.files)) writeFileSync(join(work, "upper/project", name), text);
  const script = `set -e
    mount -t overlay overlay -o lowerdir=$1,upperdir=$2/upper,workdir=$2/work,metacopy=off,redirect_dir=off $2/merged
    mount -t proc proc $2/merged/proc
    mount --bind /dev $2/merged/dev
    mkdir $2/merged/tmp/packages
    mount --bind $2/packages $2/merged/tmp/packages
    exec chroot $2/merged /bin/sh -c 'dpkg --force-unsafe-io -i /tmp/packages/*.deb'`;
  const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root", DEBIAN_FRONTEND: "noninteractive" };
  const chroot = ["--mount", "--pid", "--fork", "sh", "-c", script, "sh", tree, work];
  await exec("unshare", chroot, { env, maxBuffer: OUTPUT_BYTES });
  const tar = tarOf(dir, recipe);
  const left = ["--exclude=./tmp", "--exclude=./var/log", "--xattrs", "--xattrs-include=trusted.overlay.opaque"];
  await exec("tar", ["-C", join(work, "upper"), "--sort=name", ...left, "-cf", `${tar}.new`, "."]);
  renameSync(`${tar}.new`, tar);
  rmSync(work, { recursive: true });
}

function aptOptions(dir: string): readonly string[] {
  return ["-o", `Dir::State::lists=${dir}/lists`, "-o", "APT::Sandbox::User=root"];
}

/** Puts the images into a store in a directory, from a node that is gone afterwards. */
async function publish(dir: string, base: string): Promise<void> {
  const store = join(dir, "store.new");
  rmSync(store, { recursive: true, force: true });
  mkdirSync(store);
  {
    await using node = await startNode({ words: [`--store=${store}`] });
    await publishOne(node.client, base, { name: IMAGE_BASE, kind: "base" });
    for (const recipe of IMAGES) {
      await publishOne(node.client, tarOf(dir, recipe), { name: recipe.name, kind: "workspace" });
    }
  }
  // What an earlier set was pushed to.
  rmSync(join(dir, "fetched"), { recursive: true, force: true });
  renameSync(store, join(dir, "store"));
}

async function publishOne(
  { artifacts }: Client,
  tar: string,
  { name, kind }: { readonly name: string; readonly kind: "base" | "workspace" },
): Promise<void> {
  await artifacts.import(createReadStream(tar), { name, kind, timeoutMs: HOUR_MS });
  await artifacts.push(name, { timeoutMs: HOUR_MS });
}

function tarOf(dir: string, { name }: ImageRecipe): string {
  return join(dir, `${name}.tar`);
}
