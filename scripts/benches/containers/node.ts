// The node of this bench: many containers of one image, which is there, by its digest.
import { execFileSync } from "node:child_process";
import { request } from "node:http";
import { idOf, startContainerStage, type ContainerStage } from "../../../test/support/containers/container-stage.ts";
import { delay, until } from "../programs.ts";
import type { Cost } from "./compose.ts";

/** A node with services `service-<at>`. */
export interface BenchNode {
  readonly stage: ContainerStage;
  /** As the engine takes it. */
  readonly image: string;
  /** Adds services and waits until they run. */
  grow(from: number, to: number): Promise<number>;
  /** Changes one, and waits until it has been replaced: as long as that takes, and everything asked of the engine until it rests. */
  change(at: number, release: string): Promise<Cost & { readonly ofOthers: number }>;
  /** Has the node look at everything again, as often. */
  passes(
    count: number,
  ): Promise<{ readonly requests: number; readonly passes: number; readonly ms: readonly number[] }>;
  /** From the call of the API until it runs, in milliseconds. */
  add(name: string): Promise<number>;
}

const REST_MS = 3000;
const PATIENCE_MS = 2000;

/** Starts controller, node and engine below `dir`. */
export async function startBenchNode(dir: string): Promise<BenchNode> {
  const stage = await startContainerStage({ dir });
  const digest = await stage.publish("bench/app", "1");
  const image = { repository: `${stage.namespace}/bench/app`, tag: digest };
  const definition = (release: string) => ({ image, variables: [{ name: "RELEASE", value: release }] });
  const added = { execType: "service", stopTime: 1, logging: { maxFileSize: 1, numFiles: 2 } };
  await stage.put("first", definition("0"));
  await stage.untilRuns("first");
  await stage.remove("first");
  await stage.untilGone("first");

  const running = async (): Promise<number> => {
    const { body } = await stage.engine.call(
      "GET",
      "/containers/json?filters=%7B%22label%22%3A%5B%22io.holdfast.owner%22%5D%7D",
    );
    return (body as unknown[]).length;
  };
  const rested = async (): Promise<void> => {
    for (let seen = -1; seen !== stage.proxy.requests.length;) {
      seen = stage.proxy.requests.length;
      await delay(REST_MS);
    }
  };
  const ended = (): readonly number[] =>
    [...stage.agentLog().matchAll(/"durationMs":(\d+),"msg":"pass ended"/g)].map(([, ms]) => Number(ms));

  return {
    stage,
    image: `${stage.registryHost}/${stage.namespace}/bench/app@${digest}`,
    async grow(from, to) {
      const begun = performance.now();
      for (let at = from; at < to; at += 1) {
        const { status, body } = await stage.put(`service-${at}`, definition("0"));
        if (status >= 300) throw new Error(`service-${at}: ${status} ${JSON.stringify(body)}`);
      }
      for (const end = begun + 600_000; performance.now() < end;) {
        if ((await running()) >= to) break;
        await delay(20);
      }
      const ms = performance.now() - begun;
      await rested();
      return ms;
    },
    async change(at, release) {
      const name = `service-${at}`;
      const before = await stage.untilRuns(name);
      stage.proxy.forget();
      const begun = performance.now();
      await stage.put(name, definition(release));
      await until("it has been replaced", async () => {
        const [one, ...more] = await stage.containers(name);
        return more.length === 0 && one !== undefined && one.Id !== before.Id && one.State === "running";
      });
      const ms = performance.now() - begun;
      await rested();
      const after = await stage.untilRuns(name);
      const { requests } = stage.proxy;
      const ids = requests.flatMap(({ path }) => /^\/containers\/([0-9a-f]{64})\//.exec(path)?.[1] ?? []);
      const ofOthers = ids.filter((id) => id !== before.Id && id !== after.Id).length;
      return { ms, requests: requests.length, ofOthers };
    },
    async passes(count) {
      await rested();
      stage.proxy.forget();
      const before = ended().length;
      const [command = "", ...within] = stage.engine.within;
      for (let at = 0; at < count; at += 1) {
        const seen = ended().length;
        // An address that comes or goes is a reason to look at all sections.
        const verb = at % 2 === 0 ? "add" : "del";
        execFileSync(command, [...within, "ip", "address", verb, "127.0.0.2/32", "dev", "lo"]);
        for (const end = performance.now() + PATIENCE_MS; ended().length === seen && performance.now() < end;)
          await delay(20);
      }
      await delay(500);
      const all = ended().slice(before);
      return { requests: stage.proxy.requests.length, passes: all.length, ms: all };
    },
    async add(name) {
      const { started } = await startOf(stage.engine.socketPath, idOf(name));
      const begun = performance.now();
      const record = { id: idOf(name), name, ...added, ...definition("0") };
      const { status, body } = await stage.call("POST", `/v2/node/${stage.uid}/exec/container`, record);
      if (status >= 300) throw new Error(`${name}: ${status} ${JSON.stringify(body)}`);
      await started;
      return performance.now() - begun;
    },
  };
}

/** Listens until the engine says that a container of the definition was started; asking it again and again would slow it down. */
async function startOf(socketPath: string, id: string): Promise<{ readonly started: Promise<void> }> {
  const filters = encodeURIComponent(
    JSON.stringify({ event: { start: true }, label: { [`io.holdfast.container=${id}`]: true } }),
  );
  let isStarted = (): void => undefined;
  let isLost = (_error: Error): void => undefined;
  const started = new Promise<void>((resolve, reject) => {
    isStarted = resolve;
    isLost = reject;
  });
  await new Promise<void>((resolve, reject) => {
    const asked = request({ socketPath, path: `/events?filters=${filters}` }, (events) => {
      events.once("data", () => {
        isStarted();
        asked.destroy();
      });
      events.once("close", () => isLost(new Error("the engine tells no more events")));
      resolve();
    });
    asked.once("error", reject);
    asked.end();
  });
  return { started };
}
