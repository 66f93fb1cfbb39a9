import { spawn } from "node:child_process";
import { once } from "node:events";
import { buffer } from "node:stream/consumers";
import type { Architecture } from "../../src/protocol/documents/release.ts";
import { contentSize, tarOf } from "./archives.ts";
import { controlArchive, debOf } from "./debian.ts";
import { packageEntries, tarballEntries, type SystemFiles, type VersionFiles } from "./layout.ts";
import type { MadePackages } from "./release.ts";

/** Compression level of xz, or no compression. */
export type Level = number | "none";

/** Content and settings of an architecture's packages. */
export interface Packing {
  readonly architecture: Architecture;
  readonly version: VersionFiles;
  readonly system: SystemFiles;
  /** The maintainer scripts by name, filled in. */
  readonly scripts: ReadonlyMap<string, Buffer>;
  /** Modification time of every file, in Unix seconds. */
  readonly time: number;
  readonly level: Level;
}

/** Makes the Debian package and the tarball: of the same files the same bytes. */
export async function packed({ architecture, version, system, scripts, time, level }: Packing): Promise<MadePackages> {
  const entries = packageEntries(version, system);
  const suffix = level === "none" ? ".tar" : ".tar.xz";
  const plain = tarballEntries(version, system, scripts);
  const [data, control, tar] = await Promise.all([
    compressed(tarOf(entries, "./", time), level),
    compressed(controlArchive(version.version, architecture, entries, scripts, time), level),
    compressed(tarOf(plain, "", time), level),
  ]);
  return {
    architecture,
    deb: {
      name: `holdfast_${version.version}_${architecture}.deb`,
      data: debOf({ control, data, suffix }, time),
      unpackedSize: contentSize(entries),
    },
    tarball: {
      name: `holdfast-${version.version}-linux-${architecture}${suffix}`,
      data: tar,
      unpackedSize: contentSize(plain),
    },
  };
}

/** One thread: with several, what comes out depends on how many there are. */
async function compressed(data: Buffer, level: Level): Promise<Buffer> {
  if (level === "none") return data;
  const xz = spawn("xz", [`-${level}`, "-T1", "--format=xz", "--check=crc64", "-c"], {
    stdio: ["pipe", "pipe", "inherit"],
    // Its defaults may be set there.
    env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
  });
  const closed = once(xz, "close");
  xz.stdin.end(data);
  const [result] = await Promise.all([buffer(xz.stdout), closed]);
  if (xz.exitCode !== 0) throw new Error(`xz ended with ${String(xz.exitCode ?? xz.signalCode)}`);
  return result;
}
