import { rmSync } from "node:fs";
import { onTestFinished } from "vitest";
import type { KeeperOptions } from "../../src/agent/compute/keeper.ts";
import { systemClock, type Clock } from "../../src/host/clock.ts";
import { execStage } from "./exec-stage.ts";
import { ModelEngine } from "./model-engine.ts";

/** Id of the n-th definition. */
export const idOf = (n: number): string => `3f2b8f0e-6a7c-4c0c-9a1e-${String(n).padStart(12, "0")}`;

/** The n-th definition as the control plane writes it: a service of an image that the model has. */
export const itemOf = (n: number, more: object = {}) => ({
  id: idOf(n),
  name: `c${n}`,
  execType: "service",
  image: { repository: "team/app", tag: "1" },
  variables: [{ name: "A", value: "1" }],
  stopTime: 1,
  ...more,
});

/** The stage of section and keeper on an engine in memory; closed with the test. */
export function modelStage(clock: Clock = systemClock(), keeper: Partial<KeeperOptions> = {}) {
  const model = new ModelEngine();
  model.images.set("team/app:1", "sha256:1");
  model.registry.set("team/app:1", "sha256:1");
  const stage = execStage({ open: () => ({ engine: model.engine, cache: model.cache }), clock, keeper });
  onTestFinished(async () => {
    model.before = () => Promise.resolve();
    await stage.close();
    rmSync(stage.dir, { recursive: true, force: true });
  });
  return {
    model,
    stage,
    /** Ids of the definitions that have a running container. */
    running: (): readonly string[] =>
      [...model.containers.values()]
        .flatMap(({ state, labels }) => (state === "running" ? [labels["io.holdfast.container"] ?? ""] : []))
        .toSorted(),
    /** Has every call that begins like this wait; the returned function lets them go on. */
    hold(name: string): () => void {
      let free = (): void => undefined;
      const held = new Promise<void>((resolve) => {
        free = resolve;
      });
      model.before = (call) => (call.startsWith(name) ? held : Promise.resolve());
      return free;
    },
  };
}
