import { holdfastCommand, type GivenDirectories } from "../../lib/text/command-line.ts";

/** The state of a registered node whose private keys cannot be read: only a new registration helps. */
export const IDENTITY_LOST = {
  code: "identity-lost",
  message: "the private keys of this node are missing or damaged, and without them no session can be opened",
} as const;

/** The commands that register this machine as a new node, with the directories that they need. */
export function startOver(given: GivenDirectories): string {
  const [reset, register] = [holdfastCommand("reset", given), holdfastCommand("register <license>", given)];
  return `run '${reset}', then with a new license run '${register}'`;
}

/** The fix for a node whose keys are lost: its name is taken until the old node is deleted at the control plane. */
export function identityLostFix(given: GivenDirectories): string {
  return `restore identity/keys.json from a backup and restart the agent, or delete the node at the control plane, ${startOver(given)}`;
}
