"""An explorer of the supervisor: the real code under every order, fault, crash and notice up to a stated bound.

Each supervisor runs in threads of its own, but only one thread moves at a time. Before everything that others could
see (an operation of the store, a file put in place, a question whether to stop, an action of the program) the thread
hands over to a scheduler, which decides what happens next. A decision that is not the plain next step costs one of
the bound. The search replays the code from the start with the next list of decisions until there is none left.
"""
