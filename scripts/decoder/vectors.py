def run(write):
    return 0
