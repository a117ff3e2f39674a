/** Which colour a holder of capacity has: the same on every page, and for as long as the tab lives. */
const slots = new Map<string, number>();

/** The holder's place in the palette of `size` colours, given in order of first appearance. */
export function holderSlot(holder: string, size: number): number {
  let slot = slots.get(holder);
  if (slot === undefined) {
    slot = slots.size;
    slots.set(holder, slot);
  }
  return slot % size;
}

/** For tests. */
export function forgetHolders(): void {
  slots.clear();
}
