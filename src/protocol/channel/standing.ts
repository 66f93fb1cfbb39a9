/** How a node stands with a control plane: that is not there, would not have it, or would. */
export type Standing = "unreached" | "refusing" | "admitting";
