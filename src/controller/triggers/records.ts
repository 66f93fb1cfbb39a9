export interface TriggerRequest {
  readonly event: string;
  readonly body: unknown;
  readonly wait: boolean;
  readonly user: string;
  readonly deadlineMs: number;
  /** False for a read that is part of another operation. */
  readonly isAudited?: false;
}

/** Output of a running trigger, from `trigger.progress`. */
export interface TriggerProgress {
  readonly seq: number;
  readonly kind: "stdout" | "stderr" | "json" | "percent";
  readonly data: unknown;
}
