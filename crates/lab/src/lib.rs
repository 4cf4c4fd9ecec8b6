//! Two hosts and several paths on the real kernel, with an eavesdropper and an injector on each path.
