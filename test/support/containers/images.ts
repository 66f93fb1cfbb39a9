import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { tar, type TarEntry } from "../data-store/tar.ts";
import type { TestEngine } from "./docker-engine.ts";

/** A generated image; the same description gives the same image. */
export interface ImageOptions {
  /** Repository and tag, for example `busybox:1`. */
  readonly tag: string;
  /** Each a layer on top of busybox. */
  readonly layers?: readonly (readonly TarEntry[])[];
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly string[];
  readonly user?: string;
  readonly volumes?: readonly string[];
  /** In the engine's form: `Test`, and `Interval` and so on in nanoseconds. */
  readonly healthcheck?: Readonly<Record<string, unknown>>;
  /** Whether the image has no files. */
  readonly isEmpty?: boolean;
  readonly architecture?: string;
}

/** The command line of a container that runs until it is stopped; the first process of a container ignores signals that it does not trap. */
export const UNTIL_STOPPED: readonly string[] = ["sh", "-c", "trap exit TERM; sleep 100000 & wait"];

const BUSYBOX = "/bin/busybox";

/** The layer of a small Linux system: busybox(1) with links for all its names, and the libraries it needs. */
function busyboxLayer(): readonly TarEntry[] {
  const libraries = librariesOf(BUSYBOX);
  const directories = libraries.flatMap((path) =>
    path.split("/").flatMap((_, at, parts) => parts.slice(1, at).join("/")),
  );
  const applets = execFileSync(BUSYBOX, ["--list"], { encoding: "utf8" }).split("\n");
  return [
    ...["bin/", "etc/", "root/", "dev/", "proc/", "sys/", "var/"].map((path) => ({ path })),
    ...[...new Set(directories)].filter((path) => path !== "").map((path) => ({ path: `${path}/` })),
    { path: "tmp/", mode: 0o1777 },
    { path: "etc/passwd", data: "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n" },
    { path: "etc/group", data: "root:x:0:\nnogroup:x:65534:\n" },
    { path: "bin/busybox", mode: 0o755, data: readFileSync(BUSYBOX) },
    ...libraries.map((path) => ({ path: path.slice(1), mode: 0o755, data: readFileSync(path) })),
    ...applets
      .filter((name) => name !== "" && name !== "busybox")
      .map((name) => ({ path: `bin/${name}`, link: "busybox" })),
  ];
}

/** Lists libraries by ldd(1), which fails for a static program. */
function librariesOf(program: string): readonly string[] {
  const { stdout } = spawnSync("ldd", [program], { encoding: "utf8" });
  return [...stdout.matchAll(/(?:=> |^\s*)(\/\S+) \(/gm)].map(([, path = ""]) => path);
}

/** Returns the tar of an image for `POST /images/load`. */
export function imageTar(options: ImageOptions): Buffer {
  const base = options.isEmpty === true ? [] : [busyboxLayer()];
  const layers = [...base, ...(options.layers ?? [])].map((entries) => tar(entries));
  const config = JSON.stringify({
    architecture: options.architecture ?? (process.arch === "arm64" ? "arm64" : "amd64"),
    os: "linux",
    created: "2026-01-01T00:00:00Z",
    config: {
      Env: ["PATH=/bin", ...(options.env ?? [])],
      Entrypoint: options.entrypoint ?? null,
      Cmd: options.command ?? (options.entrypoint === undefined ? ["sh"] : null),
      ...(options.user === undefined ? {} : { User: options.user }),
      ...(options.healthcheck === undefined ? {} : { Healthcheck: options.healthcheck }),
      ...(options.volumes === undefined
        ? {}
        : { Volumes: Object.fromEntries(options.volumes.map((path) => [path, {}])) }),
    },
    rootfs: { type: "layers", diff_ids: layers.map((layer) => `sha256:${sha256(layer)}`) },
    history: layers.map(() => ({ created: "2026-01-01T00:00:00Z", created_by: "test" })),
  });
  const name = `${sha256(config)}.json`;
  const manifest = [{ Config: name, RepoTags: [options.tag], Layers: layers.map((_, index) => `${index}/layer.tar`) }];
  return tar([
    { path: "manifest.json", data: JSON.stringify(manifest) },
    { path: name, data: config },
    ...layers.flatMap((data, index) => [{ path: `${index}/` }, { path: `${index}/layer.tar`, data }]),
  ]);
}

/** Makes an image in the engine; returns its id. */
export async function makeImage(engine: Pick<TestEngine, "call">, options: ImageOptions): Promise<string> {
  const loaded = await engine.call("POST", "/images/load?quiet=1", imageTar(options));
  const found = await engine.call("GET", `/images/${options.tag}/json`);
  const { body } = found;
  if (found.status !== 200 || typeof body !== "object" || body === null || !("Id" in body)) {
    throw new Error(`no image ${options.tag}: ${JSON.stringify(loaded.body)} ${JSON.stringify(body)}`);
  }
  return String(body.Id);
}

function sha256(data: Buffer | string): string {
  return createHash("sha256").update(data).digest("hex");
}
