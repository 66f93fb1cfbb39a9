/** Event types that only the control plane raises. */
export const CONTROL_PLANE_EVENTS = [
  "Certificate Expiring",
  "Configuration Change",
  "Connection Flapping",
  "Connection Timeout",
  "Control Plane Restored",
  "Identity Shared",
  "License Reused",
  "Message Too Large",
  "Node Connect",
  "Node Delete",
  "Node Disconnect",
  "Node Signature Refused",
  "Unauthorized IP",
] as const;
export type ControlPlaneEvent = (typeof CONTROL_PLANE_EVENTS)[number];

const RESERVED: ReadonlySet<string> = new Set(CONTROL_PLANE_EVENTS.map(lettersOf));

/** Reports whether nodes may not send this event type: it could clear an alert of the control plane or imitate another source. */
export function isReservedEvent(eventType: string): boolean {
  return isForeign(eventType) || RESERVED.has(lettersOf(eventType));
}

/** Audit category of user actions on nodes through the API. */
export const CONTROL_PLANE_AUDIT = "Node Action";
/** Audit category of actions on the machine itself. */
const LOCAL_AUDIT = "Local Action";

/** Returns the category under which a node's own audit is stored; a node cannot use the control plane's category. */
export function nodeAuditCategory(category: string): string {
  return isForeign(category) || lettersOf(category) === lettersOf(CONTROL_PLANE_AUDIT) ? LOCAL_AUDIT : category;
}

/** Reports whether a name has characters other than printable ASCII; letters of other scripts look alike. */
function isForeign(name: string): boolean {
  return !/^[\x20-\x7e]*$/.test(name);
}

/** Reduces text to letters and digits and unifies look-alikes, so that case, spaces and similar letters do not make a different name. */
function lettersOf(text: string): string {
  return text
    .toLowerCase()
    .replaceAll(/[^a-z0-9|]/g, "")
    .replaceAll(/[1l|]/g, "i")
    .replaceAll("0", "o")
    .replaceAll("rn", "m")
    .replaceAll("vv", "w");
}
