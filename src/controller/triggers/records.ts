export interface TriggerRequest {
  readonly event: string;
  readonly body: unknown;
  readonly wait: boolean;
  readonly user: string;
  readonly deadlineMs: number;
  /** False for a read that is part of another operation. */
  readonly isAudited?: false;
}

/** A trigger that was sent; neither its body nor its output is kept. */
export interface SentTrigger {
  readonly id: string;
  readonly event: string;
  readonly user: string;
  /** Unix seconds. */
  readonly sentAt: number;
  /** `ok` or an error code; undefined while it runs. */
  readonly outcome: string | undefined;
}

/** Output of a running trigger, from `trigger.progress`. */
export interface TriggerProgress {
  readonly seq: number;
  readonly kind: "stdout" | "stderr" | "json" | "percent";
  readonly data: unknown;
}
