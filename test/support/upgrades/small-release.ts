import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Architecture, ReleaseClaims } from "../../../src/protocol/documents/release.ts";
import { signJws } from "../../../src/protocol/channel/jws.ts";
import { filledScript } from "../../../scripts/packaging/debian.ts";
import { installerText } from "../../../scripts/packaging/installer.ts";
import { keysText, makeKeys, signerFrom, type ReleaseSigner } from "../../../scripts/packaging/keys.ts";
import { installedOf, type SystemFiles } from "../../../scripts/packaging/layout.ts";
import { packed } from "../../../scripts/packaging/pack.ts";
import { claimsOf } from "../../../scripts/packaging/release.ts";

const PACKAGING = join(import.meta.dirname, "../../../scripts/packaging");
const LAUNCH = readFileSync(join(import.meta.dirname, "../../../systemd/launch"), "utf8");

/** Units without effect beside the launcher, in place of `systemd/`. */
export const STAND_IN_SYSTEMD: ReadonlyMap<string, Buffer> = new Map(
  Object.entries({
    "90-holdfast.preset": "enable holdfast-agent.service\ndisable holdfast-controller.service\n",
    "holdfast-agent.service": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    "holdfast-controller.service": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
    "holdfast-overlay@.service": "[Service]\nExecStart=/bin/true\n",
    "holdfast.sysusers": "g holdfast - -\nu holdfast-overlay - -\n",
    "holdfast.tmpfiles": "d /var/lib/holdfast 0700 root root -\nd /var/lib/holdfast-versions 0755 root root -\n",
    launch: LAUNCH,
  }).map(([name, text]) => [name, Buffer.from(text)]),
);

/** A release whose runtime is a shell script: otherwise like a real one for an installation. */
export interface SmallRelease {
  readonly folder: string;
  readonly claims: ReleaseClaims;
  readonly signer: ReleaseSigner;
  /** Signs other claims, with the release's key or another. */
  write(claims: ReleaseClaims, signers?: readonly ReleaseSigner[]): Promise<void>;
}

/** Makes a key in a folder. */
export async function releaseKey(folder: string, name = "key.jwk"): Promise<ReleaseSigner> {
  makeKeys(join(folder, name));
  return signerFrom(join(folder, name));
}

/** Makes one below a folder. The build's time is that of its version. */
export async function smallRelease(
  folder: string,
  build: string,
  signer: ReleaseSigner,
  architecture: Architecture = "amd64",
): Promise<SmallRelease> {
  const version = `0.1.${build.slice(0, 13)}`;
  const systemd = STAND_IN_SYSTEMD;
  const system: SystemFiles = {
    systemd,
    releaseKeys: keysText([signer.publicKey]),
    guide: new Map([["README.md", Buffer.from("guide\n")]]),
    completions: new Map([["bash", Buffer.from("# completion\n")]]),
  };
  const installed = installedOf(systemd);
  const scripts = new Map(
    ["preinst", "postinst", "prerm", "postrm"].map((name) => [
      name,
      Buffer.from(filledScript(readFileSync(join(PACKAGING, "maintainer", name), "utf8"), installed)),
    ]),
  );
  const files = {
    // The launcher's two options are Node's. With another version's bundle it does not run.
    node: Buffer.from(`#!/bin/sh\nshift 2\nRUNTIME=${version} exec sh "$@"\n`),
    bundle: Buffer.from(
      `[ "$RUNTIME $(cat "\${0%/*}/version")" = "${version} ${version}" ] || echo half a version\necho holdfast ${version} "$@"\n`,
    ),
    overlay: Buffer.from("# the overlay's own\n"),
    version,
    licences: "none\n",
    sbom: "{}\n",
  };
  const time = Date.parse(`${build.slice(0, 4)}-${build.slice(4, 6)}-${build.slice(6, 8)}T00:00:00Z`) / 1000;
  const made = await packed({ architecture, version: files, system, scripts, time, level: 0 });
  const claims = claimsOf([made], { version, build, expiresDays: 3650, minVersion: "0.1.00000000-0000" });
  mkdirSync(folder, { recursive: true });
  for (const { name, data } of [made.deb, made.tarball]) writeFileSync(join(folder, name), data);
  const installer = installerText(readFileSync(join(PACKAGING, "../install.sh"), "utf8"), [signer.publicKey.x]);
  writeFileSync(join(folder, "install.sh"), installer);
  chmodSync(join(folder, "install.sh"), 0o755);
  const write = async (claims: ReleaseClaims, signers: readonly ReleaseSigner[] = [signer]): Promise<void> => {
    const lines = await Promise.all(signers.map((by) => signJws("holdfast-release+jwt", claims, by)));
    writeFileSync(join(folder, "manifest.jws"), lines.map((line) => `${line}\n`).join(""));
  };
  await write(claims);
  return { folder, claims, signer, write };
}
