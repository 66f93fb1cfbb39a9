import { untilAborted } from "../../../src/lib/async/until-aborted.ts";
import type { Engine } from "../../../src/host/engine/engine.ts";

const CHANGES: ReadonlySet<string> = new Set([
  "createContainer",
  "startContainer",
  "stopContainer",
  "removeContainer",
  "renameContainer",
  "createNetwork",
  "connectNetwork",
  "disconnectNetwork",
]);

/**
 * An engine as seen by a program that is killed during a call: the n-th change reaches the engine or not, and neither its answer nor that
 * of any later call returns.
 */
export function cuttableEngine(engine: Engine, at: number, when: "before" | "after") {
  let changes = 0;
  let isCut = false;
  const hang = (signal: AbortSignal): Promise<never> => untilAborted(new Promise<never>(() => undefined), signal);
  const wrapped = new Proxy(engine, {
    get(target, name: keyof Engine) {
      const call = target[name] as (...args: unknown[]) => unknown;
      if (name === "events" || name === "logs") return call.bind(target);
      return async (...args: unknown[]): Promise<unknown> => {
        const signal = args.findLast((arg) => arg instanceof AbortSignal) ?? new AbortController().signal;
        if (isCut) return hang(signal);
        if (!CHANGES.has(name)) return call.apply(target, args);
        changes += 1;
        if (changes <= at) return call.apply(target, args);
        isCut = true;
        if (when === "after") await call.apply(target, args);
        return hang(signal);
      };
    },
  });
  return {
    engine: wrapped,
    isCut: () => isCut,
    /** Stops all answers. */
    cut: () => {
      isCut = true;
    },
  };
}
