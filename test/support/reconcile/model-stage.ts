import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { SupervisorOptions } from "../../../src/agent/containers/supervision/supervisor.ts";
import type { ContainerPolicy } from "../../../src/agent/sections/exec/policy.ts";
import { systemClock, type Clock } from "../../../src/host/clock.ts";
import { execStage } from "../containers/exec-stage.ts";
import { ModelEngine } from "../containers/model-engine.ts";
import { waitFor } from "../wait-for.ts";

/** Id of the n-th definition. */
export const idOf = (n: number): string => `3f2b8f0e-6a7c-4c0c-9a1e-${String(n).padStart(12, "0")}`;

/** The n-th definition in the control plane's form: a service of an image of the model. */
export const itemOf = (n: number, more: object = {}) => ({
  id: idOf(n),
  name: `c${n}`,
  execType: "service",
  image: { repository: "team/app", tag: "1" },
  variables: [{ name: "A", value: "1" }],
  stopTime: 1,
  ...more,
});

export interface ModelStageOptions {
  readonly clock?: Clock;
  readonly supervisor?: Partial<SupervisorOptions>;
  readonly check?: () => Promise<string | undefined>;
  readonly forbidden?: ReadonlyMap<string, string>;
  readonly policy?: () => ContainerPolicy;
  /** The remains of a killed agent. */
  readonly left?: { readonly model: ModelEngine; readonly dir: string };
}

/** Section and supervisor on an engine in memory; closed with the test. */
export function modelStage({
  clock = systemClock(),
  supervisor = {},
  check,
  forbidden,
  policy,
  left,
}: ModelStageOptions = {}) {
  const model = left?.model ?? new ModelEngine();
  model.images.set("team/app:1", "sha256:1");
  model.registry.set("team/app:1", "sha256:1");
  const dir = left?.dir ?? mkdtempSync(join(tmpdir(), "hf-exec-"));
  const stage = execStage({
    open: () => ({ engine: model.engine, cache: model.cache }),
    clock,
    supervisor,
    dir,
    ...(check === undefined ? {} : { check }),
    ...(forbidden === undefined ? {} : { forbidden }),
    ...(policy === undefined ? {} : { policy }),
  });
  let isOpen = true;
  onTestFinished(async () => {
    model.before = () => Promise.resolve();
    if (isOpen) await stage.close();
    rmSync(dir, { recursive: true, force: true });
  });
  return {
    model,
    stage,
    /** Ids of the definitions that have a running container. */
    running: (): readonly string[] =>
      [...model.containers.values()]
        .flatMap(({ state, labels }) => (state === "running" ? [labels["io.holdfast.container"] ?? ""] : []))
        .toSorted(),
    /** Stops everything like `kill -9` during a call of that name; returns the remains for the next agent. */
    killIn: async (name: string, work: () => Promise<unknown>): Promise<NonNullable<ModelStageOptions["left"]>> => {
      let fail = (_error: Error): void => undefined;
      const held = new Promise<void>((_resolve, reject) => {
        fail = reject;
      });
      held.catch(() => undefined);
      let isThere = false;
      model.before = (call) => {
        if (call !== name) return Promise.resolve();
        isThere = true;
        return held;
      };
      work().catch(() => undefined);
      await waitFor(`a call of ${name}`, () => isThere);
      isOpen = false;
      const dying = stage.crash();
      fail(new Error("killed"));
      await dying;
      model.before = () => Promise.resolve();
      model.reconnected();
      return { model, dir };
    },
    /** Makes every call with this prefix wait; the returned function continues them. */
    hold: (name: string): (() => void) => {
      let free = (): void => undefined;
      const held = new Promise<void>((resolve) => {
        free = resolve;
      });
      model.before = (call) => (call.startsWith(name) ? held : Promise.resolve());
      return free;
    },
  };
}
