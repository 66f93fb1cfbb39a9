import { z } from "zod";
import type { Issue, Section } from "../../../src/agent/reconcile/section.ts";

/** One step of the model: sets or removes the value of a subject. */
export const ModelStep = z.object({
  kind: z.enum(["set", "remove"]),
  subject: z.string(),
  guarded: z.boolean(),
  value: z.string(),
  removes: z.exactOptional(z.boolean()),
});
export type ModelStep = z.infer<typeof ModelStep>;

/** The machine behind a model section. */
export interface ModelMachine {
  read(): Promise<ReadonlyMap<string, string>>;
  set(subject: string, value: string): Promise<void>;
  remove(subject: string): Promise<void>;
}

/** A machine in memory; `before` is called ahead of each change, `after` once it is made; both may throw or wait. */
export class MemoryMachine implements ModelMachine {
  readonly values = new Map<string, string>();
  before: (subject: string, signal: AbortSignal | undefined) => void | Promise<void> = () => undefined;
  after: (subject: string) => void = () => undefined;

  read(): Promise<ReadonlyMap<string, string>> {
    return Promise.resolve(new Map(this.values));
  }

  async set(subject: string, value: string, signal?: AbortSignal): Promise<void> {
    await this.before(subject, signal);
    this.values.set(subject, value);
    this.after(subject);
  }

  async remove(subject: string, signal?: AbortSignal): Promise<void> {
    await this.before(subject, signal);
    this.values.delete(subject);
    this.after(subject);
  }
}

export interface ModelOptions {
  readonly name?: string;
  readonly isGuarded?: (subject: string) => boolean;
  readonly needsDataPlane?: boolean;
  readonly waits?: (actual: ReadonlyMap<string, string>) => readonly Issue[];
}

/** A section whose desired state is a flat object of texts; other entries are rejected, and so is anything but an object. */
export function modelSection(
  machine: ModelMachine,
  { name = "model", isGuarded = () => false, needsDataPlane = false, waits = () => [] }: ModelOptions = {},
): Section<ReadonlyMap<string, string>, ReadonlyMap<string, string>, ModelStep> {
  return {
    name,
    needsDataPlane,
    stored: ModelStep,
    parse(raw = {}) {
      const desired = new Map<string, string>();
      const rejected: Issue[] = [];
      if (typeof raw !== "object" || raw === null) {
        const issue = { path: name, code: "invalid", message: `${name}: must be an object` };
        return { desired, rejected: [issue], isUnusable: true };
      }
      for (const [subject, value] of Object.entries(raw)) {
        if (typeof value === "string") desired.set(subject, value);
        else
          rejected.push({ path: `${name}.${subject}`, code: "invalid", message: `${name}.${subject}: must be text` });
      }
      return { desired, rejected };
    },
    observe: () => machine.read(),
    plan(desired, actual) {
      const removed = [...actual.keys()].filter((subject) => !desired.has(subject));
      const changed = [...desired].filter(([subject, value]) => actual.get(subject) !== value);
      return [
        ...removed.map(
          (subject) => ({ kind: "remove", subject, guarded: isGuarded(subject), value: "", removes: true }) as const,
        ),
        ...changed.map(([subject, value]) => ({ kind: "set", subject, guarded: isGuarded(subject), value }) as const),
      ];
    },
    undo({ subject, guarded }, actual) {
      const value = actual.get(subject);
      return value === undefined
        ? { kind: "remove", subject, guarded, value: "" }
        : { kind: "set", subject, guarded, value };
    },
    apply(step, signal) {
      switch (step.kind) {
        case "set":
          return signal.aborted ? Promise.reject(signal.reason as Error) : machine.set(step.subject, step.value);
        case "remove":
          return machine.remove(step.subject);
      }
    },
    report: (actual) => Object.fromEntries(actual),
    waits: (_desired, actual) => waits(actual),
  };
}
