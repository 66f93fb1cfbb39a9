import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { makeKeys, signerFrom } from "../../../scripts/packaging/keys.ts";
import { sumsOf } from "../../../scripts/packaging/release.ts";
import { signJws } from "../../../src/protocol/channel/jws.ts";
import { MANIFEST_NAME, type ReleaseFile } from "../../../src/protocol/documents/release.ts";

/** Package architecture of this machine. */
export const ARCHITECTURE = process.arch === "arm64" ? "arm64" : "amd64";

const ROOT = join(import.meta.dirname, "../../..");
const run = promisify(execFile);
const SUMS = "SHA256SUMS";

/** The runtime of an installed package. */
const RUNTIME = "/usr/lib/holdfast/base/node";

interface UpgradeOptions {
  readonly change?: (bundle: string) => string;
  readonly isLight?: boolean;
}

/** A directory as made by `scripts/package`. */
export interface Release {
  readonly dir: string;
  readonly version: string;
}

/** Releases below a directory, signed by one key, which the first one trusts. */
export class Releases {
  readonly #dir: string;
  readonly #key: string;

  constructor(dir: string) {
    this.#dir = dir;
    this.#key = join(dir, "key.jwk");
    if (!existsSync(this.#key)) makeKeys(this.#key);
  }

  /** Packages this checkout's program as the build `YYYYMMDD-HHMMSS.COMMIT`, as shipped except that it is not compressed. */
  async package(build: string): Promise<Release> {
    const release = this.named(build);
    const script = ["--disable-warning=ExperimentalWarning", join(ROOT, "scripts/package.ts")];
    const args = [
      "--arch",
      ARCHITECTURE,
      "--level",
      "none",
      "--out",
      release.dir,
      "--build",
      build,
      "--sign",
      this.#key,
    ];
    await run(process.execPath, [...script, ...args], { cwd: ROOT, timeout: 600_000 });
    const tree = this.#tree(build);
    mkdirSync(tree, { recursive: true });
    const deb = join(release.dir, `holdfast_${release.version}_${ARCHITECTURE}.deb`);
    const line = `dpkg-deb --fsys-tarfile '${deb}' | tar -C '${tree}' --strip-components=5 -xf - ./usr/lib/holdfast/base`;
    await run("bash", ["--norc", "-o", "pipefail", "-c", line]);
    return release;
  }

  /**
   * Makes a later build of `base` with a changed bundle: a manifest and a tarball, which are enough for an upgrade. A light one runs on the
   * installed package's runtime, so that there are 10 MB instead of 130 to fetch, hash and unpack.
   */
  async upgrade(base: string, build: string, options: UpgradeOptions = {}): Promise<Release> {
    const { dir, version } = this.named(build);
    const tree = this.#later(base, build, options);
    mkdirSync(dir, { recursive: true });
    const name = `holdfast-${version}-linux-${ARCHITECTURE}.tar`;
    // Without compression, which would take longer than the rest.
    await run("tar", ["-C", tree, "--owner=0", "--group=0", "-cf", join(dir, name), ...readdirSync(tree)]);
    const data = readFileSync(join(dir, name));
    const unpackedSize = readdirSync(tree, { recursive: true, encoding: "utf8" })
      .map((path) => statSync(join(tree, path)))
      .reduce((sum, stat) => sum + (stat.isFile() ? stat.size : 0), 0);
    const sha256 = createHash("sha256").update(data).digest("hex");
    const file: ReleaseFile = { name, size: data.length, unpackedSize, sha256 };
    const now = Math.floor(Date.now() / 1000);
    const times = { iat: now - 60, exp: now + 86_400, minVersion: "0.1.00000000-0000" };
    const claims = { product: "holdfast" as const, version, build, ...times, files: { [ARCHITECTURE]: file } };
    const line = await signJws("holdfast-release+jwt", claims, await signerFrom(this.#key));
    writeFileSync(join(dir, MANIFEST_NAME), `${line}\n`);
    return { dir, version };
  }

  /** Makes the Debian package of a later build from that of `base`, without the files of an upgrade. */
  async deb(base: string, build: string): Promise<Release> {
    const [from, made] = [this.named(base), this.named(build)];
    const tree = join(made.dir, "deb");
    const debOf = ({ dir, version }: Release): string => join(dir, `holdfast_${version}_${ARCHITECTURE}.deb`);
    mkdirSync(made.dir, { recursive: true });
    await run("dpkg-deb", ["--raw-extract", debOf(from), tree]);
    cpSync(this.#later(base, build), join(tree, "usr/lib/holdfast/base"), { recursive: true });
    const control = join(tree, "DEBIAN/control");
    writeFileSync(control, readFileSync(control, "utf8").replaceAll(from.version, made.version));
    await run("dpkg-deb", ["-Znone", "--root-owner-group", "--build", tree, debOf(made)]);
    return made;
  }

  /** Copies the files of a release to where a control plane offers them, the manifest last. */
  offer({ dir }: Release, at: string): void {
    mkdirSync(at, { recursive: true });
    for (const name of readdirSync(dir).filter((name) => name.includes(".tar")))
      cpSync(join(dir, name), join(at, name));
    cpSync(join(dir, MANIFEST_NAME), join(at, `.${MANIFEST_NAME}`));
    renameSync(join(at, `.${MANIFEST_NAME}`), join(at, MANIFEST_NAME));
  }

  /** Returns the directory of a build's release, and its version. */
  named(build: string): Release {
    return { dir: join(this.#dir, build), version: `0.1.${build.slice(0, 13)}` };
  }

  /** Makes the directory of a later build's version from that of `base`. */
  #later(base: string, build: string, { change = (text) => text, isLight = false }: UpgradeOptions = {}): string {
    const tree = this.#tree(build);
    mkdirSync(tree, { recursive: true });
    for (const name of readdirSync(this.#tree(base)).filter((name) => name !== "node"))
      cpSync(join(this.#tree(base), name), join(tree, name), { recursive: true });
    if (isLight) writeFileSync(join(tree, "node"), `#!/bin/sh\nexec ${RUNTIME} "$@"\n`, { mode: 0o755 });
    else linkSync(join(this.#tree(base), "node"), join(tree, "node"));
    writeFileSync(join(tree, "version"), `${this.named(build).version}\n`);
    const bundle = join(tree, "holdfast.mjs");
    writeFileSync(bundle, change(readFileSync(bundle, "utf8").replaceAll(base, build)));
    const overlay = join(tree, "overlay.mjs");
    writeFileSync(overlay, readFileSync(overlay, "utf8").replaceAll(base, build));
    const files = readdirSync(tree).filter((name) => name !== SUMS);
    writeFileSync(join(tree, SUMS), sumsOf(files.map((name) => ({ name, data: readFileSync(join(tree, name)) }))));
    return tree;
  }

  #tree(build: string): string {
    return join(this.#dir, `${build}.tree`);
  }
}
