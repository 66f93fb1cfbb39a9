/** The types of events that only the control plane raises. */
export const CONTROL_PLANE_EVENTS = [
  "Configuration Change",
  "Connection Flapping",
  "Control Plane Restored",
  "Identity Shared",
  "License Reused",
  "Message Too Large",
  "Node Connect",
  "Node Delete",
  "Node Disconnect",
  "Node Signature Refused",
] as const;
export type ControlPlaneEvent = (typeof CONTROL_PLANE_EVENTS)[number];

const RESERVED: ReadonlySet<string> = new Set(CONTROL_PLANE_EVENTS);

/** Whether a node must not send events of this type: by them it could clear what is said about itself. */
export function isReservedEvent(eventType: string): boolean {
  return RESERVED.has(eventType);
}
