/** A change that was stored: the nodes whose documents it concerns, and what it made. */
export interface Changed<T> {
  readonly uids: Iterable<string>;
  readonly result: T;
}

/** Stores changes that nodes' documents contain. */
export interface Changes<Parts> {
  /**
   * Stores a change and the documents of the returned nodes in one transaction, then notifies those that are online. Returns what the
   * change made.
   */
  apply<T>(change: (tx: Parts) => Promise<Changed<T>>): Promise<T>;
}
