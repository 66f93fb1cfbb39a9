/** A node's standing with a control plane: unreachable, refused or accepted. */
export type Standing = "unreached" | "refusing" | "admitting";
