// Makes a release into a directory; scripts/package says how it is called.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { z } from "zod";
import { packageVersion } from "../src/lib/build-info.ts";
import { signJws } from "../src/protocol/channel/jws.ts";
import type { Architecture } from "../src/protocol/documents/release.ts";
import { componentsOf, Lockfile, type Component } from "./packaging/components.ts";
import { filledScript } from "./packaging/debian.ts";
import { installerText } from "./packaging/installer.ts";
import { keysFrom, keysText, makeKeys, signerFrom, type ReleaseSigner } from "./packaging/keys.ts";
import { installedOf, type SystemFiles } from "./packaging/layout.ts";
import { licencesOf, licenceText } from "./packaging/licences.ts";
import { optionsFrom, type Options } from "./packaging/options.ts";
import { packed } from "./packaging/pack.ts";
import { buildTime, claimsOf, requireSmall, sumsOf, type MadePackages } from "./packaging/release.ts";
import { runtimeFor } from "./packaging/runtime.ts";
import { sbomOf } from "./packaging/sbom.ts";

const ROOT = join(import.meta.dirname, "..");
const SCRIPTS = ["preinst", "postinst", "prerm", "postrm"];
const SHELLS = ["bash", "zsh", "fish"];

interface Built {
  readonly bundle: Buffer;
  readonly overlay: Buffer | undefined;
  readonly build: string;
  readonly packages: readonly Component[];
  readonly completions: ReadonlyMap<string, Buffer>;
}

interface Common {
  readonly options: Options;
  readonly built: Built;
  readonly lockfile: Lockfile;
  readonly system: SystemFiles;
  readonly scripts: ReadonlyMap<string, Buffer>;
  readonly ownLicence: string;
}

const [command, ...rest] = process.argv.slice(2);
try {
  if (command === "keygen") {
    const [file, ...more] = rest;
    if (file === undefined || more.length > 0) throw new Error("usage: scripts/package keygen FILE");
    makeKeys(file);
    console.log(`${file} signs releases: keep it secret. ${file}.pub is its public half.`);
  } else await makeRelease(optionsFrom(process.argv.slice(2)));
} catch (error) {
  console.error(`scripts/package: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}

async function makeRelease(options: Options): Promise<void> {
  const signers = await signersOf(options);
  const publicKeys = options.keys === undefined ? signers.map(({ publicKey }) => publicKey) : keysFrom(options.keys);
  const lockfile = Lockfile.parse(JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")));
  const built = bundleOf(options, lockfile);
  const systemd = filesIn(options.systemd);
  const installed = installedOf(systemd);
  const common: Common = {
    options,
    built,
    lockfile,
    system: {
      systemd,
      releaseKeys: keysText(publicKeys),
      guide: filesIn(join(ROOT, "docs/guide")),
      completions: built.completions,
    },
    scripts: new Map(
      SCRIPTS.map((name) => {
        const template = readFileSync(join(ROOT, "scripts/packaging/maintainer", name), "utf8");
        return [name, Buffer.from(filledScript(template, installed))];
      }),
    ),
    ownLicence: readFileSync(join(ROOT, "LICENSE"), "utf8"),
  };
  const made = await Promise.all(options.architectures.map((architecture) => packagesFor(architecture, common)));
  const version = versionOf(built.build);
  const claims = claimsOf(made, { ...options, version, build: built.build });
  const lines = await Promise.all(signers.map((signer) => signJws("holdfast-release+jwt", claims, signer)));
  const files = [
    ...made.flatMap(({ deb, tarball, sbom }) => [deb, tarball, sbom]),
    { name: "manifest.jws", data: Buffer.from(lines.map((line) => `${line}\n`).join("")) },
    { name: "install.sh", data: installerOf(publicKeys.map(({ x }) => x)), mode: 0o755 },
  ];
  const sums = { name: "SHA256SUMS", data: Buffer.from(sumsOf(files)) };
  mkdirSync(options.out, { recursive: true });
  for (const file of [...files, sums]) write(options.out, file);
  for (const { name, data } of files) console.log(`${String(data.length).padStart(10)}  ${join(options.out, name)}`);
}

function installerOf(keys: readonly string[]): Buffer {
  return Buffer.from(installerText(readFileSync(join(ROOT, "scripts/install.sh"), "utf8"), keys));
}

async function packagesFor(
  architecture: Architecture,
  { options, built, lockfile, system, scripts, ownLicence }: Common,
): Promise<MadePackages & { readonly sbom: { readonly name: string; readonly data: Buffer } }> {
  const version = versionOf(built.build);
  const time = buildTime(built.build);
  const runtime = runtimeFor(architecture, lockfile, ROOT);
  const bundleSha256 = createHash("sha256").update(built.bundle).digest("hex");
  const delivery = { version, architecture, time, bundleSha256, runtime: runtime.component, packages: built.packages };
  const sbom = sbomOf(delivery);
  const texts = built.packages.map(
    (component) => [component, licenceText(component, join(ROOT, component.folder), ownLicence)] as const,
  );
  const licences = licencesOf(ownLicence, [[runtime.component, runtime.licence], ...texts]);
  const files = { node: runtime.binary, bundle: built.bundle, overlay: built.overlay, version, licences, sbom };
  const made = await packed({ architecture, version: files, system, scripts, time, level: options.level });
  if (options.level !== "none") for (const one of [made.deb, made.tarball]) requireSmall(one);
  const sbomFile = { name: `holdfast-${version}-linux-${architecture}.cdx.json`, data: Buffer.from(sbom) };
  return { ...made, sbom: sbomFile };
}

function bundleOf({ build, bundle }: Options, lockfile: Lockfile): Built {
  const id = build ?? buildOfCommit();
  if (bundle !== undefined) {
    console.error(`scripts/package: ${bundle} is given: what packages it holds is not known, and the SBOM says none`);
    const overlay = join(dirname(bundle), "overlay.mjs");
    return {
      bundle: readFileSync(bundle),
      overlay: existsSync(overlay) ? readFileSync(overlay) : undefined,
      build: id,
      packages: [],
      completions: new Map(),
    };
  }
  const folder = mkdtempSync(join(tmpdir(), "hf-package-"));
  try {
    const inputs = join(folder, "inputs.json");
    const args = [join(ROOT, "scripts/build.ts"), "--out", folder, "--build", id, "--inputs", inputs];
    execFileSync(process.execPath, args, { cwd: ROOT, stdio: "inherit" });
    const main = join(folder, "holdfast.mjs");
    const completions = SHELLS.map(
      (shell) => [shell, execFileSync(process.execPath, [main, "completion", shell])] as const,
    );
    const paths = z.array(z.string()).parse(JSON.parse(readFileSync(inputs, "utf8")));
    const packages = componentsOf(paths, lockfile);
    const overlay = readFileSync(join(folder, "overlay.mjs"));
    return { bundle: readFileSync(main), overlay, build: id, packages, completions: new Map(completions) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The build that the commit says; the time in UTC, wherever it is made. */
function buildOfCommit(): string {
  const git = (...args: string[]): string =>
    execFileSync("git", args, { cwd: ROOT, encoding: "utf8", env: { ...process.env, TZ: "UTC", LC_ALL: "C" } }).trim();
  if (git("status", "--porcelain") !== "") {
    console.error("scripts/package: there are changes that are not committed: the build's name does not tell them");
  }
  return `${git("show", "-s", "--format=%cd", "--date=format-local:%Y%m%d-%H%M%S", "HEAD")}.${git("rev-parse", "--short=12", "HEAD")}`;
}

function versionOf(build: string): string {
  const { version } = z
    .object({ version: z.string() })
    .parse(JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")));
  return packageVersion({ version, build });
}

async function signersOf({ sign }: Options): Promise<readonly ReleaseSigner[]> {
  if (sign.length > 0) return Promise.all(sign.map(signerFrom));
  const file = join(ROOT, ".cache/release-key.jwk");
  if (!existsSync(file)) makeKeys(file);
  console.error(
    [
      "scripts/package: ############################################################",
      "scripts/package: no --sign: signed with THIS CHECKOUT'S DEVELOPMENT KEY, which",
      `scripts/package: is ${resolve(file)}`,
      "scripts/package: Whoever has that file can make releases that such nodes take.",
      "scripts/package: ############################################################",
    ].join("\n"),
  );
  return [await signerFrom(file)];
}

function filesIn(folder: string): ReadonlyMap<string, Buffer> {
  const path = folder === "systemd" ? join(ROOT, folder) : folder;
  if (!existsSync(path)) throw new Error(`${path} is not there: it holds the units and the launcher`);
  return new Map(
    readdirSync(path)
      .sort()
      .map((name) => [name, readFileSync(join(path, name))] as const),
  );
}

function write(folder: string, file: { readonly name: string; readonly data: Buffer; readonly mode?: number }): void {
  const part = join(folder, `.${file.name}.${process.pid}`);
  writeFileSync(part, file.data, { mode: file.mode ?? 0o644 });
  renameSync(part, join(folder, file.name));
}
