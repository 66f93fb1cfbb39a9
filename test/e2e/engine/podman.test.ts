import { afterAll, beforeAll, expect, test } from "vitest";
import { compileContainer } from "../../../src/agent/sections/exec/compile.ts";
import { systemClock } from "../../../src/host/clock.ts";
import type { Engine, EngineInfo } from "../../../src/host/engine/engine.ts";
import { hostEngine } from "../../../src/host/engine/host-engine.ts";
import { openEngineCache } from "../../../src/host/engine/open-cache.ts";
import { containerSpec, placement } from "../../support/containers/container-spec.ts";
import { makeImage } from "../../support/containers/images.ts";
import { startPodman, type TestPodman } from "../../support/containers/podman-engine.ts";
import { waitFor } from "../../support/wait-for.ts";

const IMAGE = "localhost/busybox:1";
const OWNER = "io.holdfast.owner=one";
/** Podman's own defaults may exceed the machine's limits. */
const LIMITS = ["nofile", "nproc"].map((Name) => ({ Name, Soft: 1024, Hard: 1024 }));
const { signal } = new AbortController();

let podman: TestPodman;
let engine: Engine;

beforeAll(async () => {
  podman = await startPodman();
  engine = hostEngine({ socketPath: podman.socketPath, clock: systemClock() });
  await makeImage(podman, { tag: IMAGE });
});

afterAll(() => podman.stop());

/** The logging configuration of a definition on this engine. */
function loggingOf(product: EngineInfo["product"]): unknown {
  const compiled = compileContainer(containerSpec(), placement({ product }));
  if ("refused" in compiled) throw new Error(compiled.refused);
  return (compiled.body["HostConfig"] as Record<string, unknown>)["LogConfig"];
}

test("Podman runs a container, has its output, gives a terminal and reports its end", async () => {
  expect(await engine.version(signal)).toMatchObject({ product: "podman" });
  const { cpus, product } = await engine.info(signal);
  expect(cpus).toBeGreaterThan(0);
  const cache = openEngineCache({ engine, clock: systemClock(), owner: OWNER });
  await waitFor("it is well", () => cache.standing.state === "well");
  const body = {
    Image: IMAGE,
    Cmd: ["sh", "-c", "echo out; echo err >&2; sleep 1000"],
    Labels: { "io.holdfast.owner": "one" },
    HostConfig: {
      NetworkMode: "none",
      CgroupParent: podman.cgroupParent,
      Ulimits: LIMITS,
      LogConfig: loggingOf(product),
    },
  };
  const { id } = await engine.createContainer("one", body, signal);
  await engine.startContainer(id, signal);
  await waitFor("the cache knows it", () => cache.containers.get(id)?.state === "running");
  expect(await engine.inspectContainer(id, signal)).toMatchObject({ name: "one", state: "running" });
  expect(await engine.listContainers([OWNER], signal)).toMatchObject([{ id, name: "one", state: "running" }]);

  const output = { stdout: "", stderr: "" };
  await waitFor("it has spoken", async () => {
    Object.assign(output, { stdout: "", stderr: "" });
    for await (const { stream, data } of engine.logs(id, { follow: false, tail: undefined }, signal))
      output[stream] += data.toString();
    return output.stdout === "out\n" && output.stderr === "err\n";
  });

  const terminal = await engine.terminal(id, { command: ["sh"], user: undefined, columns: 91, rows: 33 }, signal);
  let shown = "";
  terminal.stream.on("data", (piece: Buffer) => (shown += piece.toString()));
  terminal.stream.write("stty size\n");
  await waitFor("the size", () => shown.includes("33 91"));
  terminal.stream.write("exit 7\n");
  expect(await terminal.exitCode(signal)).toBe(7);

  await engine.killContainer(id, "SIGKILL", signal);
  await waitFor("the cache knows its end", () => cache.containers.get(id)?.state === "exited");
  expect(cache.containers.get(id)?.exitCode).toBe(137);
  await engine.removeContainer(id, { force: true }, signal);
  await waitFor("the cache is empty", () => cache.containers.size === 0);
  cache.close();
});
